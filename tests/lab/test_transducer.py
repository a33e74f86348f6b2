"""A transducer's loss, lag and search against every alignment of tiny lattices, one by one."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import numpy as np
import pytest
import torch

from earvoice.training.transducer import BLANK, align, expected_lag, search

pytestmark = pytest.mark.torch

VOCABULARY = 5
STEPS, LENGTHS = (4, 1, 3, 2), (3, 2, 0, 1)
PIECES = (0, 1, 3, 4)


def _batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shape = (len(STEPS), max(STEPS), max(LENGTHS) + 1, VOCABULARY)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    text = torch.tensor(PIECES)[
        torch.randint(0, 4, (len(STEPS), max(LENGTHS)), generator=generator)
    ]
    return logits, text, torch.tensor(STEPS), torch.tensor(LENGTHS)


def _each_alignment(
    logits: torch.Tensor, text: torch.Tensor, steps: int, length: int
) -> list[tuple[torch.Tensor, tuple[int, ...]]]:
    """Log-probability of each way to write the text, and the step of each piece."""
    rows = logits.log_softmax(-1)
    found = []
    for places in combinations_with_replacement(range(steps), length):
        total = rows.new_zeros(())
        written = 0
        for step in range(steps):
            while written < length and places[written] == step:
                total = total + rows[step, written, text[written]]
                written += 1
            total = total + rows[step, written, BLANK]
        found.append((total, places))
    return found


def _enumerated() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logits, text, *_ = _batch()
    totals, lags = [], []
    for row, (count, length) in enumerate(zip(STEPS, LENGTHS, strict=True)):
        ways = _each_alignment(logits[row], text[row], count, length)
        scores = torch.stack([score for score, _ in ways])
        late = torch.tensor(
            [
                sum(max(0.0, n + 1 - u * count / length) for u, n in enumerate(places))
                / max(1, length)
                for _, places in ways
            ],
            dtype=torch.float64,
        )
        totals.append(scores.logsumexp(0))
        lags.append((scores.softmax(0) * late).sum())
    total, lag = torch.stack(totals), torch.stack(lags)
    (gradient,) = torch.autograd.grad((lag - total).sum(), logits)
    return total, lag, gradient


def test_loss_and_lag_are_those_of_all_alignments() -> None:
    """Texts and sources of several lengths, an empty text and a single step among them."""
    total, lag, _ = _enumerated()
    logits, text, steps, lengths = _batch()
    log_probability, written = align(logits, text, steps, lengths)
    torch.testing.assert_close(log_probability, total)
    torch.testing.assert_close(expected_lag(written, steps, lengths), lag)
    torch.testing.assert_close(written.sum((1, 2)), lengths.double())


def test_gradients_are_those_of_all_alignments() -> None:
    """Of both together; what is padded has none."""
    *_, expected = _enumerated()
    logits, text, steps, lengths = _batch()
    log_probability, written = align(logits, text, steps, lengths)
    torch.autograd.backward((expected_lag(written, steps, lengths) - log_probability).sum())
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, expected)
    assert not logits.grad[1, 1:].any()
    assert not logits.grad[2, :, 1:].any()


def test_a_long_lattice_stays_finite() -> None:
    """A minute of speech, confident and wrong."""
    logits = torch.zeros(1, 150, 201, 3, requires_grad=True)
    with torch.no_grad():
        logits[..., 0] = 40.0
    steps, lengths = torch.tensor([150]), torch.tensor([200])
    log_probability, written = align(logits, torch.ones(1, 200, dtype=torch.long), steps, lengths)
    torch.autograd.backward((expected_lag(written, steps, lengths) - log_probability).sum())
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
    assert float(written.detach().sum()) == pytest.approx(200)


class _Model:
    """Random log-probabilities of what follows each text at each step."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, step: int, texts: list[tuple[int, ...]]) -> np.ndarray:
        rows = [np.random.default_rng((self._seed, step, *text)).normal(size=4) for text in texts]
        scores = 2 * np.stack(rows)
        return scores - np.logaddexp.reduce(scores, 1)[:, None]


@pytest.mark.parametrize("seed", range(5))
def test_a_wide_search_finds_every_text_with_its_probability(seed: int) -> None:
    """The sum over alignments, so merged; the narrow search's text is one of them, no likelier."""
    model, longest, steps = _Model(seed), 2, 3
    found = dict(search(model, steps, within=99, between=99, most_pieces=longest))
    texts = [text for n in range(longest + 1) for text in product((0, 1, 3), repeat=n)]
    assert set(found) == set(texts)
    for text in texts:
        nodes = [[model(n, [text[:u]])[0] for u in range(len(text) + 1)] for n in range(steps)]
        logits = torch.tensor(np.array(nodes))[None]
        counts = torch.tensor([steps]), torch.tensor([len(text)])
        target = torch.tensor([text], dtype=torch.long)
        expected, _ = align(logits, target, *counts)
        assert found[text] == pytest.approx(float(expected))
    assert list(found.values()) == sorted(found.values(), reverse=True)
    ((narrow, score),) = search(model, steps, within=1, between=1, most_pieces=longest)
    assert score <= found[narrow] + 1e-9
