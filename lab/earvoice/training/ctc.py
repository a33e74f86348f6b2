"""Teach the CTC branch beside the frozen encoder: which frames belong to which piece."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from earvoice.corpus.states import mixed_precision, pretrained_encoder
from earvoice.models.vocabulary import Vocabulary
from earvoice.models.whisper import CtcBranch, WhisperEncoder
from earvoice.training.data import batches
from earvoice.training.schedule import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from earvoice.training.data import Heard

ROOM_FRAMES = 5000
PEAK_RATE = 1.2e-3
LAST_PEAK_RATE = 4e-4
"""When the branch knows its labels already."""
DROPOUT = 0.1
AVERAGE = 0.996


def with_branch(vocabulary: Vocabulary, dropout: float = 0.0) -> WhisperEncoder:
    """The pretrained encoder with an untrained branch for these pieces."""
    encoder = copy.deepcopy(pretrained_encoder())
    encoder.ctc = CtcBranch(encoder.config, len(vocabulary) + 1, dropout)
    return encoder


Labelled = tuple[torch.Tensor, list[int]]
"""Joined states [frames, 2 d], a part of them silenced, and what they are to be labelled as."""


class CtcTrainer(Trainer["Sequence[Labelled]"]):
    """The branch learns from clips whose words are known; the encoder's states are as they are.

    Args:
        encoder: with a branch for these pieces; the clips' states are its own.
        peak_rate: the highest at which it learns.
    """

    losses: ClassVar[tuple[str, ...]] = ("CTC",)

    def __init__(
        self,
        encoder: WhisperEncoder,
        clips: Sequence[Heard],
        vocabulary: Vocabulary,
        peak_rate: float = PEAK_RATE,
    ) -> None:
        self.encoder, self.branch, self.blank = encoder, encoder.ctc.train(), len(vocabulary)
        labels = [(clip, vocabulary.encode(clip.said)) for clip in clips if clip.said is not None]
        self.known = [(clip, own) for clip, own in labels if len(own) < clip.frames]
        parameters = dict(self.branch.named_parameters())
        super().__init__(parameters, [(parameters.values(), peak_rate)], AVERAGE)

    def steps(self, generator: np.random.Generator) -> Iterator[Sequence[Labelled]]:
        sizes = [clip.joined for clip, _ in self.known]
        for part in batches(sizes, ROOM_FRAMES, generator):
            clips = (self.known[index] for index in part)
            yield [(masked(clip.load(), generator), own) for clip, own in clips]

    def backward(self, drawn: Sequence[Labelled]) -> np.ndarray:
        joined = nn.utils.rnn.pad_sequence([states for states, _ in drawn], batch_first=True)
        lengths = torch.tensor([len(states) for states, _ in drawn])
        with mixed_precision():
            log_probs = self.encoder.label(joined, lengths)
        loss = functional.ctc_loss(
            log_probs.float().transpose(0, 1),
            torch.tensor([label for _, own in drawn for label in own]),
            lengths,
            torch.tensor([len(own) for _, own in drawn]),
            blank=self.blank,
            zero_infinity=True,
        )
        torch.autograd.backward(loss)
        return np.array([loss.item()])

    def state(self) -> dict[str, Any]:
        return {"branch": self.branch.state_dict(), "average": self.average}

    def restore(self, state: dict[str, Any]) -> None:
        self.branch.load_state_dict(state["branch"])
        for name, value in self.average.items():
            value.copy_(state["average"][name])


def masked(joined: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
    """Up to three stretches of 0.4 s are silenced (SpecAugment, Park 2019, over time alone)."""
    for _ in range(generator.integers(0, 4)):
        begin = generator.integers(0, len(joined))
        joined[begin : begin + generator.integers(1, 11)] = 0
    return joined
