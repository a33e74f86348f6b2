"""What a network reads in whole inputs: the CTC transcript and the translation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from earvoice.decoder.beam import begin_beam
from earvoice.decoder.strategy import BeamPlan, Progress, Prompt
from earvoice.models.vocabulary import EOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earvoice.models.decoding import CachedDecoder
    from earvoice.models.encoder import EncoderOutput
    from earvoice.models.translation import SpeechTranslationModel

_TOKENS_PER_STATE = 1.5
_SPARE_TOKENS = 20


def ctc_tokens(encoded: EncoderOutput, blank: int) -> list[int]:
    """Return the transcript's source ids: repeated labels once, blanks removed."""
    labels = torch.unique_consecutive(encoded.frame_labels).tolist()
    return [label for label in labels if label != blank]


def greedy_translations(
    network: SpeechTranslationModel, encoded: Sequence[EncoderOutput], opening: Sequence[int]
) -> list[list[int]]:
    """Return `greedy_hypotheses` of several utterances."""
    return greedy_hypotheses(network.decoder, [output.states for output in encoded], opening)


def greedy_hypotheses(
    decoder: CachedDecoder, memories: Sequence[torch.Tensor], opening: Sequence[int]
) -> list[list[int]]:
    """Return the most probable token after token for several inputs side by side.

    Every hypothesis stands behind the forced tokens of `opening`, start token first, and ends at
    the end token, or at a length that no translation reaches.

    Args:
        decoder: in evaluation mode.
        memories: encoder states of each input, each [S, d] float32.
        opening: start token, and perhaps a language tag.
    """
    caches = [decoder.open_cache(states) for states in memories]
    for forced in opening[:-1]:
        decoder.step([forced] * len(caches), caches, [1] * len(caches))
    limits = [_SPARE_TOKENS + _TOKENS_PER_STATE * len(states) for states in memories]
    hypotheses: list[list[int]] = [[] for _ in memories]
    open_ones = list(range(len(memories)))
    while open_ones:
        last = [hypotheses[i][-1] if hypotheses[i] else opening[-1] for i in open_ones]
        logits, _ = decoder.step(last, [caches[i] for i in open_ones], [1] * len(open_ones))
        still_open = []
        for index, token in zip(open_ones, logits.argmax(-1).tolist(), strict=True):
            if token != EOS:
                hypotheses[index].append(token)
                if len(hypotheses[index]) < limits[index]:
                    still_open.append(index)
        open_ones = still_open
    return hypotheses


@torch.inference_mode()
def beam_translation(
    network: SpeechTranslationModel, encoded: EncoderOutput, opening: Sequence[int], beam: int
) -> list[int]:
    """Return the best hypothesis of a beam search, as the decoder service does it."""
    decoder = network.decoder
    plan = BeamPlan(beam, round(_SPARE_TOKENS + _TOKENS_PER_STATE * len(encoded.states)))
    start = Prompt(tuple(opening), (), 1, forbid_end=False, beam=plan)
    run, progress = begin_beam(decoder, decoder.open_cache(encoded.states), start, plan)
    while not progress.beam:
        logits, rows = decoder.step(run.last_tokens, [run.cache], [1])
        progress = run.take(logits, rows)
    return _tokens(progress)


def _tokens(progress: Progress) -> list[int]:
    best = [choice.token for choice in progress.beam[0].tokens]
    return best[:-1] if best and best[-1] == EOS else best
