"""Searching by guessing gives what searching step by step gives."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earvoice.decoder.search import SearchStrategy
from earvoice.decoder.strategy import block_of
from earvoice.evaluation.replay.hypotheses import (
    Continuation,
    ContinuationMemo,
    HypothesisRequest,
    SearchTask,
    _continuation,
    _describe,
    search,
)
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.decoding import CachedDecoder
from earvoice.models.vocabulary import BOS, EOS, PAD
from tests.tiny_model import WIDTH

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
    return load_checkpoint(path).network.decoder


def states_of(count: int) -> torch.Tensor:
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
    tasks, expected = [], []
    for one in all_wanted:
        found = step_by_step(
            decoder,
            one["prefix"],
            one["limit"],
            one["state_count"],
            forbid_end=one["forbid_end"],
        )
        guess = found[0][:5] + one["guess"] if knows else one["guess"]
        request = HypothesisRequest(0, one["prefix"], one["limit"], one["forbid_end"])
        tasks.append(SearchTask(request, block_of(states_of(one["state_count"]).numpy()), guess))
        expected.append(found)
    search(SearchStrategy(decoder), decoder, (EOS,), tasks)
    for task, (chosen, attention) in zip(tasks, expected, strict=True):
        result = task.result()
        assert list(result.tokens) == chosen
        torch.testing.assert_close(result.weights[1].mean(0), attention, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("final", [False, True])
def test_nothing_is_found_only_where_the_services_would(tiny_path: Path, *, final: bool):
    """A model that is never sure enough that nothing was said writes something of it all."""
    config = load_checkpoint(tiny_path).config
    shape = replace(config.decoder, least_empty_probability=1.0)
    decoder = CachedDecoder(replace(config, decoder=shape)).eval()
    with torch.no_grad():
        decoder.layer_norm.weight.zero_()
        decoder.layer_norm.bias.fill_(1.0)
        decoder.output_projection.weight.zero_()
        decoder.output_projection.weight[EOS] = 0.1
    blocks = [block_of(states_of(6).numpy(), final=final) for _ in range(2)]
    tasks = [
        SearchTask(HypothesisRequest(0, prefix, 4, forbid_end=False), block)
        for prefix, block in zip(((), (5,)), blocks, strict=True)
    ]
    search(SearchStrategy(decoder), decoder, (EOS,), tasks)
    whole, rest = (task.result().tokens for task in tasks)
    assert (whole[0] == EOS) == (not final)
    assert rest[0] == EOS


def test_a_beam_is_searched_in_any_company(tiny_path: Path):
    """Beams and greedy hypotheses are stepped together, and each is what it is alone."""
    decoder = decoder_of(tiny_path)
    strategy = SearchStrategy(decoder)

    def tasks() -> list[SearchTask]:
        requests = [
            HypothesisRequest(0, (5,), 9, forbid_end=False, beam_size=size) for size in (3, 1, 2)
        ]
        return [SearchTask(request, block_of(states_of(6).numpy())) for request in requests]

    together, alone = tasks(), tasks()
    search(strategy, decoder, (EOS,), together)
    for task in alone:
        search(strategy, decoder, (EOS,), [task])
    for one, other in zip(together, alone, strict=True):
        assert one.result().tokens == other.result().tokens
        assert one.result().alternatives == other.result().alternatives
        assert one.result().step_count == other.result().step_count
        assert one.result().weights.shape[2:] == (len(one.result().tokens), 6)
    beam, greedy, _ = (task.result() for task in together)
    assert len(beam.alternatives) == 3
    assert beam.step_count > 0
    assert (greedy.alternatives, greedy.step_count) == ((), 0)


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


def test_a_search_that_translates_nothing_answers_for_its_own_prefix():
    """Once something has been said of it, what is translated is another text."""
    weights, nothing, text = torch.zeros(1, 1, 2, 2), ((EOS, -0.1),), ((11, -0.2), (EOS, -0.1))
    for source, is_known in ((nothing, False), (text, True), ((), True)):
        memo = ContinuationMemo()
        memo.add(Continuation((), (8, EOS), True, (0.0,) * 2, weights, source=source))
        assert memo.find((), 400) is not None
        assert (memo.find((8,), 400) is not None) == is_known


def test_what_is_translated_is_kept_with_a_hypothesis():
    """Through JSON; a recording that was made before has nothing of it."""
    weights: dict[str, torch.Tensor] = {}
    found = Continuation(
        (7,),
        (8, EOS),
        True,
        (0.0, -1.0),
        torch.zeros(1, 1, 2, 2),
        source=((11, -0.25), (EOS, -0.5)),
    )
    line = json.loads(json.dumps(_describe(found, weights)))
    assert _continuation(line, weights).source == found.source
    del line["source"]
    assert _continuation(line, weights).source == ()
