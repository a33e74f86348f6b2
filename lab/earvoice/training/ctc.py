"""Train the CTC branch beside the frozen encoder: which frames belong to which piece."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from earvoice.corpus.states import mixed_precision, pretrained_encoder
from earvoice.models.vocabulary import Vocabulary
from earvoice.models.whisper import CtcBranch, WhisperEncoder
from earvoice.training.data import batches
from earvoice.training.schedule import Trainer, without_attention_dropout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from earvoice.training.data import Heard

ROOM_FRAMES = 2500
PEAK_RATE = 1.2e-3
LAST_PEAK_RATE = 6e-4
"""For a branch that is already trained."""
UPPER_PEAK_RATE, JOINT_PEAK_RATE = 1.5e-4, 4e-4
"""Once the branch has upper layers: theirs, and that of its other layers."""
UPPER_LAYERS = 2
"""How many of the encoder's last layers are copied into the branch in the end."""
HALF_WAY_SHARE = 0.3
"""Share of the loss on labels after half of the layers (Lee & Watanabe 2021)."""
LATE_FRAMES = 3
"""Pieces in this many last frames before a cut are not to be labelled yet."""
DROPOUT = 0.1
AVERAGE = 0.996


def with_branch(vocabulary: Vocabulary, dropout: float = 0.0) -> WhisperEncoder:
    """The pretrained encoder with an untrained branch for these pieces."""
    encoder = copy.deepcopy(pretrained_encoder())
    encoder.ctc = CtcBranch(encoder.config, len(vocabulary) + 1, dropout)
    return encoder


def with_upper_layers(
    encoder: WhisperEncoder, dropout: float = 0.0, count: int = UPPER_LAYERS
) -> WhisperEncoder:
    """The same encoder, its branch extended by a copy of the encoder's last layers."""
    grown = copy.deepcopy(encoder)
    grown.config = replace(encoder.config, ctc=replace(encoder.config.ctc, upper_layers=count))
    grown.ctc = CtcBranch(grown.config, encoder.ctc.head.out_features, dropout)
    grown.ctc.load_state_dict(encoder.ctc.state_dict(), strict=False)
    grown.ctc.upper.load_state_dict(encoder.layers[-count:].state_dict())
    grown.ctc.upper_layer_norm.load_state_dict(encoder.layer_norm.state_dict())
    return grown.eval()


Labelled = tuple["Heard", list[int]]
"""A clip and its CTC labels."""
Drawn = tuple[torch.Tensor, list[int]]
"""Joined states [frames, 2 d], partly masked, and their labels."""


def labelled(
    clips: Sequence[Heard], vocabulary: Vocabulary, encoder: WhisperEncoder | None = None
) -> list[Labelled]:
    """The clips whose words are known and fit into their frames.

    Args:
        encoder: aligns the pieces of whole clips, so that a cut clip is labelled with the pieces
            that remain in it; without it, cut clips are left out.
    """
    whole = {clip.key: clip for clip in clips if not clip.is_cut and not clip.is_worsened}
    found = []
    for clip in clips:
        if clip.said is None:
            continue
        own = vocabulary.encode(clip.said)
        if clip.is_cut:
            heard = whole.get(clip.recording)
            if encoder is None or heard is None:
                continue
            with torch.inference_mode():
                log_probs = encoder.label(heard.load()[None])[0, : heard.frames]
            frames = piece_frames(log_probs.numpy(), own)
            if not frames:
                continue
            begin, end = clip.begin_frame, clip.begin_frame + clip.frames - LATE_FRAMES
            own = [piece for piece, at in zip(own, frames, strict=True) if begin <= at < end]
        if len(own) < clip.frames:
            found.append((clip, own))
    return found


def piece_frames(log_probs: np.ndarray, labels: Sequence[int]) -> list[int]:
    """The frame in which each label begins, as in `align`; empty if there are too few frames."""
    try:
        return [first for first, _ in align(log_probs, labels)]
    except ValueError:
        return []


def align(log_probs: np.ndarray, labels: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the last frame of each label on the most probable path (Viterbi).

    Args:
        log_probs: [T, V + 1] of CTC, the blank last.
        labels: to be said in this order; two equal neighbours have a blank between them.

    Raises:
        ValueError: there are fewer frames than labels and required blanks.
    """
    frame_count, blank = len(log_probs), log_probs.shape[1] - 1
    repeats = sum(first == second for first, second in pairwise(labels))
    if frame_count < len(labels) + repeats:
        raise ValueError(
            f"{len(labels)} labels do not fit {frame_count} frames; "
            f"allowed: {len(labels) + repeats} frames or more"
        )
    if not labels:
        return []
    # Blank, label, blank, label, ..., blank: the states that a path goes through.
    states = np.full(2 * len(labels) + 1, blank)
    states[1::2] = labels
    skips = np.zeros(len(states), bool)
    skips[3::2] = states[3::2] != states[1:-2:2]
    score = np.full(len(states), -np.inf)
    score[:2] = log_probs[0, states[:2]]
    steps = np.zeros((frame_count, len(states)), np.int64)
    for frame in range(1, frame_count):
        ways = np.full((3, len(states)), -np.inf)
        ways[0] = score
        ways[1, 1:] = score[:-1]
        ways[2, 2:] = np.where(skips[2:], score[:-2], -np.inf)
        steps[frame] = ways.argmax(0)
        score = ways.max(0) + log_probs[frame, states]
    state = len(states) - 1 - int(score[-2] > score[-1])
    spans: list[list[int]] = [[frame_count, -1] for _ in labels]
    for frame in range(frame_count - 1, -1, -1):
        if state % 2:
            span = spans[state // 2]
            span[0], span[1] = frame, max(span[1], frame)
        state -= int(steps[frame, state])
    return [(first, last) for first, last in spans]


class CtcTrainer(Trainer["Sequence[Drawn]"]):
    """Trains the branch on clips whose words are known; the encoder is frozen.

    Args:
        encoder: with a branch for these pieces; the clips' states must be this encoder's.
        peak_rate: of the learning rate, for all of the branch but its upper layers.
    """

    losses: ClassVar[tuple[str, ...]] = ("half way", "CTC")
    part = "branch"

    def __init__(
        self, encoder: WhisperEncoder, clips: Sequence[Labelled], peak_rate: float = PEAK_RATE
    ) -> None:
        self.encoder, self.branch, self.known = encoder, encoder.ctc.train(), clips
        without_attention_dropout(self.branch)
        parameters = dict(self.branch.named_parameters())
        upper = [p for name, p in parameters.items() if name.startswith("upper")]
        rest = [p for name, p in parameters.items() if not name.startswith("upper")]
        peaks = [(rest, peak_rate), *([(upper, UPPER_PEAK_RATE)] if upper else [])]
        super().__init__(self.branch, peaks, AVERAGE)

    def steps(self, generator: np.random.Generator) -> Iterator[Sequence[Drawn]]:
        sizes = [clip.joined for clip, _ in self.known]
        for part in batches(sizes, ROOM_FRAMES, generator):
            clips = (self.known[index] for index in part)
            yield [(masked(clip.load(), generator), own) for clip, own in clips]

    def backward(self, drawn: Sequence[Drawn]) -> np.ndarray:
        joined = nn.utils.rnn.pad_sequence([states for states, _ in drawn], batch_first=True)
        lengths = torch.tensor([len(states) for states, _ in drawn])
        labels = torch.tensor([label for _, own in drawn for label in own])
        counts = torch.tensor([len(own) for _, own in drawn])
        with mixed_precision():
            both = self.encoder.label_half_way(joined, lengths)
        half_way, loss = (
            functional.ctc_loss(
                log_probs.float().transpose(0, 1),
                labels,
                lengths,
                counts,
                blank=log_probs.shape[-1] - 1,
                zero_infinity=True,
            )
            for log_probs in both
        )
        torch.autograd.backward(torch.lerp(loss, half_way, HALF_WAY_SHARE))
        return np.array([half_way.item(), loss.item()])


def masked(joined: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
    """Mask up to three stretches of at most 0.4 s (SpecAugment, Park 2019, over time alone)."""
    for _ in range(generator.integers(0, 4)):
        begin = generator.integers(0, len(joined))
        joined[begin : begin + generator.integers(1, 11)] = 0
    return joined
