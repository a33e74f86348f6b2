"""The two halves of the network alone: speech to transcript, transcript to translation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.conformer import position_rows, valid_frames
from earvoice.models.transformer import Dropout

if TYPE_CHECKING:
    from earvoice.models.translation import SightMask, SpeechTranslationModel

_NOISE = 0.3
_GATED_GAIN = 1.8
"""A gate halves what passes; random signs make up for some of it."""


def transcribe(
    network: SpeechTranslationModel, features: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the encoder up to its CTC head.

    Args:
        network: in training mode.
        features: [B, T, 80] float32, normalised.
        lengths: [B] int64 frames.

    Returns:
        CTC log-probabilities [B, T', V+1] float32, and valid frames [B].
    """
    encoder = network.papers_encoder
    hidden, shorter = encoder.subsample(features, lengths)
    middle = encoder.config.ctc_layer
    hidden = _through(network, encoder.layers[:middle], hidden, shorter)
    return encoder.ctc_fc(hidden).float().log_softmax(-1), shorter


def translate_labels(
    network: SpeechTranslationModel,
    labels: torch.Tensor,
    lengths: torch.Tensor,
    previous_tokens: torch.Tensor,
    mask: SightMask | None = None,
) -> torch.Tensor:
    """Run the layers above the CTC head and the decoder on labels instead of speech.

    A label's state is its row of the CTC matrix, as long as a layer-normalised state, with
    noise: the direction in which the lower layers push the states that they read so.

    Args:
        network: in training mode.
        labels: [B, S] int64 CTC labels, blanks included.
        lengths: [B] int64 valid labels.
        previous_tokens: [B, L] int64, start token first.
        mask: which labels each token is written with; None is all of them.

    Returns:
        Logits [B, L, V] float32.
    """
    states = read_labels(network, labels, lengths, _NOISE)
    visible = None if mask is None else mask(labels, previous_tokens)
    logits: torch.Tensor = network.decoder(previous_tokens, states, lengths, visible)
    return logits


def read_labels(
    network: SpeechTranslationModel, labels: torch.Tensor, lengths: torch.Tensor, noise: float
) -> torch.Tensor:
    """Return the encoder's states of [B, S] labels, [B, S, d] float32; padding's mean nothing."""
    encoder = network.papers_encoder
    rows = encoder.ctc_fc.weight.detach()[labels]
    states = functional.normalize(rows, dim=-1) * math.sqrt(rows.shape[-1])
    if noise:
        states = states + noise * torch.randn_like(states)
    states = states * valid_frames(lengths, states.shape[1])[..., None]
    return _through(network, encoder.layers[encoder.config.ctc_layer :], states, lengths)


def open_subsampler(network: SpeechTranslationModel) -> None:
    """Start the strided convolutions so that each keeps the size of its input.

    PyTorch's default shrinks the signal to a fifteenth on its way through three gated layers.
    """
    for conv in network.papers_encoder.subsample.conv_layers:
        if isinstance(conv, nn.Conv1d):
            fan_in = conv.weight.shape[1] * conv.weight.shape[2]
            nn.init.normal_(conv.weight, std=_GATED_GAIN / math.sqrt(fan_in))
            if conv.bias is not None:
                nn.init.zeros_(conv.bias)


def set_lower_dropout(network: SpeechTranslationModel, probability: float) -> None:
    """Set the dropout of the layers up to the CTC head; the network keeps its own above."""
    threshold = Dropout(probability).threshold
    lower = network.papers_encoder.layers[: network.papers_encoder.config.ctc_layer]
    for module in (network.papers_encoder.dropout, *lower.modules()):
        if isinstance(module, Dropout):
            module.threshold = threshold


def parameter_groups(network: SpeechTranslationModel) -> list[dict[str, Any]]:
    """Return the layers up to the CTC head, then all others, as two groups of an optimiser.

    A network that reads already loses what it has learned at a rate that a new vocabulary needs.
    """
    encoder = network.papers_encoder
    reading = (encoder.subsample, *encoder.layers[: encoder.config.ctc_layer], encoder.ctc_fc)
    lower = [parameter for module in reading for parameter in module.parameters()]
    known = {id(parameter) for parameter in lower}
    upper = [parameter for parameter in network.parameters() if id(parameter) not in known]
    return [{"params": lower}, {"params": upper}]


def hold_statistics(network: SpeechTranslationModel, *, held: bool) -> None:
    """Freeze or release the BatchNorm statistics above the CTC head.

    Once speech goes through these layers, text must not shape their statistics.
    """
    for module in network.papers_encoder.layers[
        network.papers_encoder.config.ctc_layer :
    ].modules():
        if isinstance(module, nn.BatchNorm1d):
            module.train(not held)


def _through(
    network: SpeechTranslationModel,
    layers: nn.ModuleList,
    hidden: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    frames, width = hidden.shape[1:]
    rows = position_rows(network.papers_encoder.config.positions, frames, width).to(hidden.device)
    valid = valid_frames(lengths, frames)
    for layer in layers:
        hidden = layer(hidden, rows, lengths, valid)
    return hidden
