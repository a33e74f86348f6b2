"""CTC compression: one encoder state for each run of frames with the same label (Gaido 2021)."""

import dataclasses

import torch

from earvoice.models.config import Compression
from earvoice.models.conformer import valid_frames

FIXED_RUN_FRAMES = 4
"""Frames that "fixed" averages into one state."""


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A padded batch after compression; S is the longest utterance's number of states."""

    states: torch.Tensor
    """[B, S, d] float32, zero where padded; from an encoder, those after its last layer."""
    lengths: torch.Tensor
    """[B] int64 states of each utterance."""
    labels: torch.Tensor
    """[B, S] int64 CTC label of each state (its first frame's), -1 where padded."""
    run_lengths: torch.Tensor
    """[B, S] int64 encoder frames behind each state, 0 where padded; they add up to T."""
    frame_labels: torch.Tensor
    """[B, T] int64 greedy label of every frame; meaningless where padded."""
    ctc_log_probs: torch.Tensor
    """[B, T, V+1] float32 of the frames, blank last."""
    ctc_lengths: torch.Tensor
    """[B] int64 valid frames of T."""


def compress(
    states: torch.Tensor,
    lengths: torch.Tensor,
    ctc_log_probs: torch.Tensor,
    strategy: Compression,
) -> Encoded:
    """Shorten every utterance as the strategy says.

    Runs are maximal stretches of equal greedy labels, runs of blanks included. "avg" takes the
    mean of a run, "weighted" the mean weighted by p(label), "softmax" by the softmax of p(label)
    within the run, "fixed" the mean of every 4 frames, "none" leaves all frames.

    Returns:
        No gradient flows through the weights, as in the papers' code.
    """
    with torch.no_grad():
        peak, label = ctc_log_probs.max(-1)
        valid = valid_frames(lengths, states.shape[1])
    if strategy == "none":
        longest = int(lengths.max())
        heard = valid[:, :longest]
        return Encoded(
            states=states[:, :longest] * heard[..., None],
            lengths=lengths,
            labels=torch.where(heard, label[:, :longest], -1),
            run_lengths=heard.long(),
            frame_labels=label,
            ctc_log_probs=ctc_log_probs,
            ctc_lengths=lengths,
        )
    with torch.no_grad():
        runs = _run_numbers(label, strategy)
        run_count = torch.where(valid, runs + 1, 0).amax(1)
        slots = int(run_count.max())
        # Padded frames go to an extra slot after the last, which is cut off again.
        slot = torch.where(valid, runs, slots)
        sizes = _summed(torch.ones_like(peak), slot, slots)
        weights = _frame_weights(peak.exp(), slot, slots, sizes, strategy)
    batch, _, width = states.shape
    flat_slot = (slot + torch.arange(batch, device=slot.device)[:, None] * (slots + 1)).flatten()
    total = states.new_zeros(batch * (slots + 1), width)
    total = total.index_add(0, flat_slot, (states * weights[..., None]).flatten(0, 1))
    return Encoded(
        states=total.view(batch, slots + 1, width)[:, :slots],
        lengths=run_count,
        labels=_first_labels(label, slot, slots),
        run_lengths=sizes[:, :slots].long(),
        frame_labels=label,
        ctc_log_probs=ctc_log_probs,
        ctc_lengths=lengths,
    )


def _run_numbers(label: torch.Tensor, strategy: Compression) -> torch.Tensor:
    """[B, T] int64: which run each frame belongs to, counted from 0."""
    frame = torch.arange(label.shape[1], device=label.device).expand_as(label)
    if strategy == "fixed":
        return frame // FIXED_RUN_FRAMES
    begins = torch.ones_like(label, dtype=torch.bool)
    begins[:, 1:] = label[:, 1:] != label[:, :-1]
    return begins.cumsum(1) - 1


def _frame_weights(
    peak: torch.Tensor,
    slot: torch.Tensor,
    slots: int,
    sizes: torch.Tensor,
    strategy: Compression,
) -> torch.Tensor:
    """[B, T] float32: the share of each frame in its run's state; they add up to 1 in a run."""
    if strategy not in ("weighted", "softmax"):
        return 1.0 / sizes.gather(1, slot)
    mass = peak.exp() if strategy == "softmax" else peak
    return mass / _summed(mass, slot, slots).gather(1, slot)


def _summed(values: torch.Tensor, slot: torch.Tensor, slots: int) -> torch.Tensor:
    """[B, T] values added up by slot → [B, slots + 1]."""
    return values.new_zeros(values.shape[0], slots + 1).scatter_add(1, slot, values)


def _first_labels(label: torch.Tensor, slot: torch.Tensor, slots: int) -> torch.Tensor:
    first = torch.ones_like(slot, dtype=torch.bool)
    first[:, 1:] = slot[:, 1:] != slot[:, :-1]
    labels = label.new_full((label.shape[0], slots + 1), -1)
    labels.scatter_(1, torch.where(first, slot, slots), label)
    return labels[:, :slots]
