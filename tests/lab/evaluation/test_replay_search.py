"""Searching by guessing gives what searching step by step gives."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earvoice.evaluation.replay.continuation import Continuation, ContinuationMemo
from earvoice.evaluation.replay.parallel_search import ParallelSearch
from earvoice.evaluation.replay.search import Search
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.decoding import CachedDecoder
from earvoice.models.vocabulary import BOS, EOS, PAD
from tests.integration.decoder.tiny_checkpoint import WIDTH

pytestmark = pytest.mark.torch

tokens = st.integers(4, 40)
wanted = st.fixed_dictionaries(
    {
        "prefix": st.lists(tokens, max_size=4).map(tuple),
        "guess": st.lists(tokens, max_size=8),
        "limit": st.integers(1, 14),
        "forbid_end": st.booleans(),
        "state_count": st.integers(1, 9),
    }
)


@cache
def decoder_of(path: Path) -> CachedDecoder:
    """The tiny decoder, loaded once."""
    return load_checkpoint(path).network.decoder


def states_of(count: int) -> torch.Tensor:
    """[count, d] noise."""
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(count))


def step_by_step(
    decoder: CachedDecoder, prefix: tuple[int, ...], limit: int, count: int, *, forbid_end: bool
) -> tuple[list[int], torch.Tensor]:
    """Plain greedy search: tokens, and the second layer's mean attention [n, S]."""
    states = decoder.open_cache(states_of(count))
    logits, rows = decoder.prefill([EOS, *prefix], states, 2)
    chosen, attention, row = [], [], rows[-1]
    while True:
        scores = logits[-1].clone()
        scores[[BOS, PAD, *([EOS] if forbid_end else [])]] = -torch.inf
        chosen.append(int(scores.argmax()))
        attention.append(row)
        if chosen[-1] == EOS or len(chosen) == limit:
            return chosen, torch.stack(attention)
        logits, found = decoder.step(chosen[-1:], [states], [2])
        row = found[0]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(wanted, min_size=1, max_size=5), st.booleans())
def test_guesses_change_no_token(tiny_path: Path, all_wanted: list[dict], knows: bool):
    """Wrong, right or no guesses, in any company: tokens and attention of plain greedy."""
    decoder = decoder_of(tiny_path)
    search = ParallelSearch(decoder, [EOS])
    searches, expected = [], []
    for one in all_wanted:
        found = step_by_step(
            decoder,
            one["prefix"],
            one["limit"],
            one["state_count"],
            forbid_end=one["forbid_end"],
        )
        guess = found[0][:5] + one["guess"] if knows else one["guess"]
        memory = search.open_states(states_of(one["state_count"]))
        searches.append(Search(one["prefix"], guess, one["limit"], one["forbid_end"], memory))
        expected.append(found)
    search.run(searches)
    for one, (chosen, attention) in zip(searches, expected, strict=True):
        result = one.result()
        assert list(result.tokens) == chosen
        torch.testing.assert_close(result.weights[1].mean(0), attention, atol=1e-5, rtol=1e-4)


def test_one_search_answers_for_every_prefix_on_its_way():
    """Greedy search has no memory but its tokens."""
    memo = ContinuationMemo()
    found = Continuation((7,), (8, 9, EOS), True, (0.0,) * 3, torch.zeros(1, 1, 3, 2))
    memo.add(found)
    assert memo.find((7,), 400) == (found, 0)
    assert memo.find((7, 8, 9), 400) == (found, 2)
    assert memo.find((7, 9), 400) is None
    assert memo.guess((7, 8)) == (9, EOS)


def test_a_cut_search_answers_only_for_what_it_saw():
    """Behind its last token nothing is known, unless the sentence ended there."""
    memo = ContinuationMemo()
    memo.add(Continuation((), (8, 9), False, (0.0,) * 2, torch.zeros(1, 1, 2, 2)))
    assert memo.find((), 3) is None
    assert memo.find((8,), 1) is not None
    assert memo.find((8, 9), 1) is None
