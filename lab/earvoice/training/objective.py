"""What one optimisation step minimises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from earvoice.training.device import half_precision
from earvoice.training.halves import hold_statistics, transcribe, translate_labels
from earvoice.training.loss import anchor_loss, ctc_loss, smoothed_cross_entropy
from earvoice.training.schedule import ctc_weight

if TYPE_CHECKING:
    import torch

    from earvoice.models.translation import SightMask, SpeechTranslationModel
    from earvoice.training.dataset import Batch
    from earvoice.training.recipe import TrainingRecipe
    from earvoice.training.text_data import TextBatch


@dataclass(frozen=True)
class Losses:
    """Losses of one step, scalars; what was not computed is 0.

    Attributes:
        total: what is differentiated.
        speech: label-smoothed cross-entropy of translations of speech, nats a token.
        text: the same of translations of text.
        ctc: nats a transcript token.
    """

    total: torch.Tensor
    speech: torch.Tensor
    text: torch.Tensor
    ctc: torch.Tensor


def apart(
    network: SpeechTranslationModel, speech: Batch, text: TextBatch | None, recipe: TrainingRecipe
) -> Losses:
    """Train the halves side by side: speech to transcript, at times transcript to translation."""
    with half_precision(speech.features.device):
        log_probs, lengths = transcribe(network, speech.features, speech.lengths)
    ctc = ctc_loss(log_probs, lengths, speech)
    subsampling = 2**network.config.papers_encoder.subsampler.layers
    anchor = anchor_loss(log_probs, lengths, speech, subsampling)
    total = recipe.ctc_weight[0] * ctc + recipe.anchor_weight * anchor
    nothing = ctc.new_zeros(())
    if text is None:
        return Losses(total, nothing, nothing, ctc.detach())
    written = _text_loss(network, text, recipe)
    return Losses(total + written, nothing, written.detach(), ctc.detach())


def together(
    network: SpeechTranslationModel,
    speech: Batch,
    text: TextBatch | None,
    progress: float,
    recipe: TrainingRecipe,
    mask: SightMask | None = None,
) -> Losses:
    """Cross-entropy + weight · CTC on speech (Papi 2022), at times with text beside it.

    With a mask, both are written with what it lets be seen.
    """
    smoothing = recipe.label_smoothing
    with half_precision(speech.features.device):
        output = network(speech.features, speech.lengths, speech.previous_tokens, mask)
    spoken = smoothed_cross_entropy(output.logits, speech.next_tokens, smoothing)
    ctc = ctc_loss(output.ctc_log_probs, output.ctc_lengths, speech)
    written = spoken.new_zeros(())
    total = spoken + ctc_weight(progress, recipe) * ctc
    if text is not None:
        hold_statistics(network, held=True)
        written = _text_loss(network, text, recipe, mask)
        hold_statistics(network, held=False)
        total = total + recipe.text.weight * written
    return Losses(total, spoken.detach(), written.detach(), ctc.detach())


def _text_loss(
    network: SpeechTranslationModel,
    text: TextBatch,
    recipe: TrainingRecipe,
    mask: SightMask | None = None,
) -> torch.Tensor:
    with half_precision(text.labels.device):
        logits = translate_labels(network, text.labels, text.lengths, text.previous_tokens, mask)
    return smoothed_cross_entropy(logits, text.next_tokens, recipe.label_smoothing)
