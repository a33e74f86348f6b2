"""The papers' losses: label-smoothed cross-entropy, and CTC."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from earvoice.training.dataset import NO_ANCHOR, NO_TARGET

if TYPE_CHECKING:
    from earvoice.training.dataset import Batch


_LEAST_TOKENS = 8
"""An input of noise alone counts like a short sentence, or a batch of them would be all that
matters."""


def smoothed_cross_entropy(
    logits: torch.Tensor, next_tokens: torch.Tensor, smoothing: float
) -> torch.Tensor:
    """Label-smoothed cross-entropy, nats a token.

    Args:
        logits: [B, L, V] float32.
        next_tokens: [B, L] int64, `NO_TARGET` where nothing is to be learned.
        smoothing: probability shared by all pieces, 0 to 1.
    """
    total = functional.cross_entropy(
        logits.flatten(0, 1),
        next_tokens.flatten(),
        ignore_index=NO_TARGET,
        label_smoothing=smoothing,
        reduction="sum",
    )
    return total / (next_tokens != NO_TARGET).sum().clamp(min=1)


def ctc_loss(log_probs: torch.Tensor, lengths: torch.Tensor, batch: Batch) -> torch.Tensor:
    """CTC (Graves 2006), nats a transcript token; the blank is the last label.

    Transcripts too long for their frames (speech played very fast) give no loss.

    Args:
        log_probs: [B, T', V+1] float32.
        lengths: [B] int64 valid frames of T'.
        batch: the batch whose transcripts are to be read.
    """
    total = functional.ctc_loss(
        log_probs.transpose(0, 1),
        batch.transcripts,
        lengths,
        batch.transcript_lengths,
        blank=log_probs.shape[-1] - 1,
        reduction="sum",
        zero_infinity=True,
    )
    return total / batch.transcript_lengths.clamp(min=_LEAST_TOKENS).sum()


def anchor_loss(
    log_probs: torch.Tensor, lengths: torch.Tensor, batch: Batch, subsampling: int
) -> torch.Tensor:
    """A flat start for CTC: each piece is to be read near where it is probably spoken.

    CTC alone says nothing about time, and a fresh network spends long on blanks before it finds
    any. The loss is -log of the piece's mean probability in the anchor's frame and its two
    neighbours, nats a token.

    Args:
        log_probs: [B, T', V+1] float32.
        lengths: [B] int64 valid frames of T'.
        batch: the batch with its anchors.
        subsampling: feature frames in a frame of `log_probs`.
    """
    known = batch.anchors != NO_ANCHOR
    row = torch.repeat_interleave(
        torch.arange(len(lengths), device=lengths.device), batch.transcript_lengths
    )[known]
    label, frame = batch.transcripts[known], batch.anchors[known] // subsampling
    last = lengths[row] - 1
    near = [
        log_probs[row, torch.minimum((frame + offset).clamp(min=0), last), label]
        for offset in (-1, 0, 1)
    ]
    return -(torch.stack(near).logsumexp(0) - math.log(len(near))).sum() / known.sum().clamp(min=1)
