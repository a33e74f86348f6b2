"""CTC: what labels spell, and a state for each run of frames with the same (Gaido 2021)."""

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch

from earvoice.models.config import Compression
from earvoice.models.transformer import valid_frames

FIXED_RUN_FRAMES = 4
"""Frames that "fixed" averages into one state."""

BEAM_SIZE = 4
CHOICES = 8
"""The search considers this many of a frame's likeliest labels."""

LEAST_LOG_PROB = math.log(0.001)
"""It considers no label less likely than this, except a frame's likeliest."""

UNSURE_LOG_PROB = math.log(0.9)
"""Where every frame's likeliest label is likelier than this, these labels need no search."""

SURE_LOG_PROB = math.log(0.99)
"""A blank at least this likely divides the search: what follows depends on nothing before it."""

Text = tuple[int, ...]
"""Labels without repeats and blanks."""


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


def likeliest_labels(log_probs: torch.Tensor) -> list[int]:
    """Label every frame so that the labels spell the likeliest text.

    Greedy labels are the likeliest path, but a text is as likely as all its paths together (Graves
    2006). Where another text is likelier, each of its labels stands at one frame.

    Args:
        log_probs: [T, V+1] float32, blank last.
    """
    blank = log_probs.shape[1] - 1
    best, choices = log_probs.topk(min(CHOICES, blank + 1))
    labels: list[int] = choices[:, 0].tolist()
    divides = (choices[:, 0] == blank) & (best[:, 0] >= SURE_LOG_PROB)
    begin = 0
    for divided, group in itertools.groupby(divides.tolist()):
        end = begin + len(list(group))
        if not divided and best[begin:end, 0].min() < UNSURE_LOG_PROB:
            text, onsets = _likeliest_text(
                best[begin:end].tolist(), choices[begin:end].tolist(), blank
            )
            if text != spelled(labels[begin:end], blank):
                labels[begin:end] = [blank] * (end - begin)
                for label, onset in zip(text, onsets, strict=True):
                    labels[begin + onset] = label
        begin = end
    return labels


def spelled(frame_labels: Iterable[int], blank: int) -> Text:
    return tuple(label for label, _ in itertools.groupby(frame_labels) if label != blank)


@dataclasses.dataclass
class _Paths:
    """The paths that spell one text and end alike; as log-probabilities."""

    sum: float = -math.inf
    likeliest: float = -math.inf
    """The largest summand."""
    onsets: tuple[int, ...] = ()
    """The frame of each label in the largest summand."""

    def add(self, log_prob: float, onsets: tuple[int, ...]) -> None:
        self.sum = _log_sum(self.sum, log_prob)
        if log_prob > self.likeliest:
            self.likeliest, self.onsets = log_prob, onsets


@dataclasses.dataclass
class _Spellings:
    """All paths that spell one text: those that end in a blank, and in the text's last label."""

    in_blank: _Paths = dataclasses.field(default_factory=_Paths)
    in_label: _Paths = dataclasses.field(default_factory=_Paths)

    @property
    def sum(self) -> float:
        return _log_sum(self.in_blank.sum, self.in_label.sum)

    @property
    def onsets(self) -> tuple[int, ...]:
        return max(self.in_blank, self.in_label, key=lambda paths: paths.likeliest).onsets


def _likeliest_text(
    log_probs: Sequence[Sequence[float]], choices: Sequence[Sequence[int]], blank: int
) -> tuple[Text, tuple[int, ...]]:
    """Search with a beam of texts (Hannun 2014) among each frame's likeliest labels, best first.

    Returns:
        The text, and the frame of each of its labels.
    """
    beam: dict[Text, _Spellings] = {(): _Spellings(in_blank=_Paths(sum=0.0, likeliest=0.0))}
    for frame, (row, labels) in enumerate(zip(log_probs, choices, strict=True)):
        grown: dict[Text, _Spellings] = defaultdict(_Spellings)
        least = min(LEAST_LOG_PROB, row[0])
        for text, paths in beam.items():
            for log_prob, label in zip(row, labels, strict=True):
                if log_prob < least:
                    break
                if label == blank:
                    grown[text].in_blank.add(paths.sum + log_prob, paths.onsets)
                    continue
                before: _Paths | _Spellings = paths
                if text[-1:] == (label,):
                    stays = paths.in_label
                    grown[text].in_label.add(stays.sum + log_prob, stays.onsets)
                    # Without a blank between, the two labels would be one.
                    before = paths.in_blank
                grown[*text, label].in_label.add(before.sum + log_prob, (*before.onsets, frame))
        likely = sorted(grown.items(), key=lambda item: item[1].sum, reverse=True)
        beam = dict(likely[:BEAM_SIZE])
    text, paths = next(iter(beam.items()))
    return text, paths.onsets


def _log_sum(one: float, other: float) -> float:
    """The logarithm of the sum of two probabilities, from theirs."""
    low, high = sorted((one, other))
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
