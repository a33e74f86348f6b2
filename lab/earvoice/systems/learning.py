"""Training and greedy search of the papers' other systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.decoding import CachedDecoder
from earvoice.models.lstm import LstmDecoder
from earvoice.models.vocabulary import EOS
from earvoice.training.data import batches
from earvoice.training.schedule import optimiser, rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

DROPOUT = 0.1
SMOOTHING = 0.1

ExampleT = TypeVar("ExampleT")
DecoderT = TypeVar("DecoderT", CachedDecoder, LstmDecoder)


def learn(
    network: nn.Module,
    parts: Iterator[list[ExampleT]],
    loss_of: Callable[[list[ExampleT]], torch.Tensor],
    step_count: int,
    peak_rate: float,
    first_step: int = 0,
) -> list[float]:
    """Train with Adam for `step_count` steps, each on the next batch; return the losses."""

    def backward() -> float:
        loss = loss_of(next(parts))
        torch.autograd.backward(loss)
        return float(loss.detach())

    return descend(network, backward, step_count, peak_rate, first_step)


def descend(
    network: nn.Module,
    backward: Callable[[], float],
    step_count: int,
    peak_rate: float,
    first_step: int = 0,
) -> list[float]:
    """Run Adam for `step_count` steps on the gradients that `backward` leaves; return the losses.

    Args:
        first_step: position of the first step in the learning-rate schedule.
    """
    optim = optimiser(network.train().parameters(), peak_rate)
    course: list[float] = []
    for step in range(first_step, first_step + step_count):
        optim.zero_grad()
        course.append(backward())
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for group in optim.param_groups:
            group["lr"] = peak_rate * rate(step, step / step_count)
        optim.step()
    network.eval()
    return course


def drawn(
    examples: Sequence[ExampleT], sizes: Sequence[int], room: int, generator: np.random.Generator
) -> Iterator[list[ExampleT]]:
    """Endless batches of examples, each at most `room` in size with padding."""
    for part in batches(sizes, room, generator):
        yield [examples[i] for i in part]


def padded_texts(texts: Sequence[Sequence[int]]) -> torch.Tensor:
    """[B, L]: each text between two end-of-sentence tokens; -1 after the second."""
    rows = [torch.tensor([EOS, *text, EOS]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def text_loss(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Label-smoothed cross-entropy of [B, L, V] with [B, L]; -1 is ignored."""
    return functional.cross_entropy(
        logits.flatten(0, 1), wanted.flatten(), ignore_index=-1, label_smoothing=SMOOTHING
    )


def continued(decoder: DecoderT, states: torch.Tensor, kept: Sequence[int]) -> Iterator[int]:
    """The greedy continuation of the kept pieces, until the sentence ends."""
    cache, given = decoder.open_cache(states), [EOS, *kept]
    while True:
        logits, _ = decoder.prefill(given, cache, 1, first_logits=len(given) - 1)
        logits[:, :EOS] = -torch.inf
        piece = int(logits[0].argmax())
        if piece == EOS:
            return
        yield piece
        given = [piece]
