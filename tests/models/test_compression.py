"""Compression of padded batches equals a plain definition, utterance by utterance."""

from itertools import groupby

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from earvoice.models.config import Compression
from earvoice.models.ctc import compress

pytestmark = pytest.mark.torch

STRATEGIES: tuple[Compression, ...] = ("avg", "none", "weighted", "softmax", "fixed")


def _runs(labels: list[int], strategy: Compression) -> list[list[int]]:
    """The frames of each state, written as one would explain them."""
    frames = list(range(len(labels)))
    if strategy == "none":
        return [[frame] for frame in frames]
    if strategy == "fixed":
        return [frames[start : start + 4] for start in range(0, len(frames), 4)]
    return [list(run) for _, run in groupby(frames, key=lambda frame: labels[frame])]


def _expected(
    states: torch.Tensor, probabilities: torch.Tensor, strategy: Compression
) -> tuple[torch.Tensor, list[int]]:
    peak, labels = probabilities.max(-1)
    vectors, sizes = [], []
    for run in _runs(labels.tolist(), strategy):
        weight = torch.ones(len(run))
        if strategy == "weighted":
            weight = peak[run]
        if strategy == "softmax":
            weight = peak[run].softmax(0)
        vectors.append((states[run] * (weight / weight.sum())[:, None]).sum(0))
        sizes.append(len(run))
    return torch.stack(vectors), sizes


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 24), min_size=1, max_size=4),
    strategy=st.sampled_from(STRATEGIES),
    seed=st.integers(0, 2**16),
)
def test_batch_equals_definition(lengths: list[int], strategy: Compression, seed: int) -> None:
    """States, run lengths and lengths of every utterance follow the definition alone."""
    generator = torch.Generator().manual_seed(seed)
    frames = max(lengths)
    states = torch.randn(len(lengths), frames, 3, generator=generator)
    log_probs = (torch.randn(len(lengths), frames, 3, generator=generator) * 2).log_softmax(-1)
    compressed = compress(states, torch.tensor(lengths), log_probs, strategy)
    assert compressed.states.shape[1] == int(compressed.lengths.max())
    for index, length in enumerate(lengths):
        vectors, sizes = _expected(
            states[index, :length], log_probs[index, :length].exp(), strategy
        )
        count = int(compressed.lengths[index])
        assert compressed.run_lengths[index, :count].tolist() == sizes
        torch.testing.assert_close(compressed.states[index, :count], vectors)
        assert not compressed.states[index, count:].any()
        assert (compressed.labels[index, count:] == -1).all()


def test_gradient_reaches_every_valid_frame_and_no_padding() -> None:
    """Training pushes each frame by its share in its state; padding gets nothing."""
    states = torch.randn(2, 6, 3, requires_grad=True)
    log_probs = torch.randn(2, 6, 4).log_softmax(-1)
    total = compress(states, torch.tensor([6, 3]), log_probs, "avg").states.sum()
    torch.autograd.backward(total)
    assert states.grad is not None
    assert states.grad[0].all()
    assert states.grad[1, :3].all()
    assert not states.grad[1, 3:].any()
