"""Beam search: what it finds, and that neither caches nor company change it."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earvoice.decoder.loading import LoadedDecoder
from earvoice.decoder.search import SearchStrategy
from earvoice.decoder.strategy import BeamPlan, Progress, Prompt, block_of
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.decoding import CachedDecoder
from tests.integration.decoder.conftest import random_states
from tests.integration.decoder.searching import (
    END,
    beam_opening,
    log_probabilities,
    search,
    search_together,
    slow_search,
)
from tests.tiny_model import TARGET_TEXT, random_network, tiny_config, train_sentencepiece

pytestmark = pytest.mark.torch

LIMIT = 12
LAYER = 2
seeds = st.integers(0, 10_000)
sizes = st.integers(1, 6)
prefixes = st.lists(st.integers(3, 63), max_size=5)
drawn = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def plain(tiny_path: Path) -> CachedDecoder:
    """The tiny checkpoint's decoder as it was trained, for teacher forcing."""
    return load_checkpoint(tiny_path).network.decoder


def tokens_of(found: Progress) -> list[tuple[int, ...]]:
    """Each item's new tokens, best first."""
    return [tuple(choice.token for choice in item.tokens) for item in found.beam]


def nearest(found: Progress) -> float:
    """Smallest distance of two neighbours' scores."""
    scores = [item.score for item in found.beam]
    return min((a - b for a, b in pairwise(scores)), default=1.0)


@drawn
@given(seed=seeds, prefix=prefixes, size=sizes)
def test_slow_search_finds_the_same(
    tiny: LoadedDecoder, plain: CachedDecoder, seed: int, prefix: list[int], size: int
) -> None:
    """The n-best list and its scores are those of a search without caches and batches."""
    states, forced = random_states(seed, 6), [END, *prefix]
    plan = BeamPlan(size, LIMIT, all_hypotheses=True)
    found = search(tiny.strategy, states, beam_opening(forced, plan, LAYER))
    expected = slow_search(plain, states, forced, size, LIMIT)
    if not found.near_tie and nearest(found) > 1e-5:
        assert tokens_of(found) == [leaf.tokens for leaf in expected]
        lengths = [len(prefix) + len(leaf.tokens) for leaf in expected]
        assert [item.score for item in found.beam] == pytest.approx(
            [leaf.total / length for leaf, length in zip(expected, lengths, strict=True)], abs=1e-4
        )


@pytest.mark.parametrize(("seed", "prefix"), [(1, []), (2, []), (3, [7, 20]), (4, [5])])
def test_a_transducer_compares_texts_by_their_probability(seed: int, prefix: list[int]) -> None:
    """Nothing at all is one of them, also at the very beginning."""
    config = tiny_config(*[train_sentencepiece(TARGET_TEXT)] * 2)
    layers = replace(config.decoder, predictor_layers=1)
    decoder = random_network(replace(config, decoder=layers)).decoder
    states, forced = random_states(seed, 6), [END, *prefix]
    plan = BeamPlan(8, 3, all_hypotheses=True)
    strategy = SearchStrategy(decoder)
    found = search(strategy, states, beam_opening(forced, plan, 1))
    for item in found.beam:
        tokens = [choice.token for choice in item.tokens]
        scores = log_probabilities(decoder, states, [*forced, *tokens])
        text = [*forced[1:], *tokens]
        total = sum(float(scores[place, token]) for place, token in enumerate(text))
        assert item.score == pytest.approx(total, abs=1e-4)
    ranked = [item.score for item in found.beam]
    assert ranked == sorted(ranked, reverse=True)
    first = log_probabilities(decoder, states, forced)[-1]
    if first[END] > np.sort(first)[-8]:
        assert (END,) in tokens_of(found)


@torch.inference_mode()
def test_numbers_that_overflow_end_one_search_of_a_batch(tiny: LoadedDecoder) -> None:
    """It has what it found until then; its neighbour goes on as if it were alone."""
    plan = BeamPlan(3, LIMIT, all_hypotheses=True)
    opening = beam_opening([END], plan, LAYER, forbid_end=True)
    states = block_of(random_states(1, 6))
    (alone, _), (sound, _), (broken, _) = (tiny.strategy.begin(states, opening) for _ in range(3))
    broken.cache.cross_values.fill_(torch.nan)
    for step in range(3):
        expected = tiny.strategy.step([alone])[0]
        if step:
            found = tiny.strategy.step([sound])[0]
        else:
            failed, found = tiny.strategy.step([broken, sound])
            assert [len(item.tokens) for item in failed.beam] == [1, 1, 1]
        assert found == expected
        assert sound.last_tokens == alone.last_tokens


@drawn
@given(seed=seeds, prefix=prefixes, size=sizes, forbid_end=st.booleans())
def test_items_are_what_they_say(
    tiny: LoadedDecoder,
    plain: CachedDecoder,
    seed: int,
    prefix: list[int],
    size: int,
    *,
    forbid_end: bool,
) -> None:
    """Sorted, distinct, within the limit, with a teacher-forced pass's numbers; one is attended."""
    states, forced = random_states(seed), [END, *prefix]
    plan = BeamPlan(size, LIMIT, all_hypotheses=True)
    wanted = beam_opening(forced, plan, LAYER, forbid_end=forbid_end, reported_prefix_tokens=1)
    found = search(tiny.strategy, states, wanted)
    assert len(found.beam) == size
    assert len(set(tokens_of(found))) == size
    assert [item.score for item in found.beam] == sorted(
        (item.score for item in found.beam), reverse=True
    )
    for rank, item in enumerate(found.beam):
        tokens = [choice.token for choice in item.tokens]
        assert END not in tokens[:-1]
        assert len(tokens) == LIMIT or tokens[-1] == END
        assert len(tokens) <= LIMIT
        assert not (forbid_end and tokens[-1] == END)
        whole = [*forced, *tokens]
        scores = log_probabilities(plain, states, whole[:-1])
        own = [float(scores[i, token]) for i, token in enumerate(whole[1:])]
        assert item.score == pytest.approx(np.mean(own), abs=1e-4)
        assert [choice.log_probability for choice in item.tokens] == pytest.approx(
            own[len(prefix) :], abs=1e-4
        )
        assert {len(choice.attention) for choice in item.tokens} == {
            len(states) if rank == 0 else 0
        }


@drawn
@given(seed=seeds, prefix=st.lists(st.integers(3, 63), min_size=1, max_size=5))
def test_beam_of_one_is_greedy(tiny: LoadedDecoder, seed: int, prefix: list[int]) -> None:
    """The same tokens, log-probabilities and attention, prefix rows included."""
    states, forced = random_states(seed), (END, *prefix)
    greedy = Prompt(forced, (), LAYER, forbid_end=False, reported_prefix_tokens=len(prefix))
    run, begun = tiny.strategy.begin(block_of(states), greedy)
    choices = begun.tokens
    while choices[-1].token != END and len(choices) < LIMIT:
        choices += tiny.strategy.step([run])[0].tokens
    wanted = beam_opening(forced, BeamPlan(1, LIMIT), LAYER, reported_prefix_tokens=len(prefix))
    found = search(tiny.strategy, states, wanted)
    if any(choice.near_tie for choice in choices):
        return
    assert tokens_of(found) == [tuple(choice.token for choice in choices)]
    np.testing.assert_allclose(found.prefix_attention, begun.prefix_attention, atol=1e-5)
    for one, other in zip(found.beam[0].tokens, choices, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)
        np.testing.assert_allclose(one.attention, other.attention, atol=1e-5)


@drawn
@given(
    wanted=st.lists(st.tuples(seeds, prefixes, sizes, st.integers(1, 3)), min_size=2, max_size=5)
)
def test_company_changes_nothing(
    tiny: LoadedDecoder, wanted: list[tuple[int, list[int], int, int]]
) -> None:
    """Beams of different sizes, prefixes and layers in one batch: what each finds alone."""
    searches = [
        (
            random_states(seed),
            beam_opening([END, *prefix], BeamPlan(size, LIMIT, all_hypotheses=True), layer),
        )
        for seed, prefix, size, layer in wanted
    ]
    together = search_together(tiny.strategy, searches)
    for (states, opening), found in zip(searches, together, strict=True):
        alone = search(tiny.strategy, states, opening)
        if alone.near_tie or nearest(alone) < 1e-5:
            continue
        assert tokens_of(found) == tokens_of(alone)
        assert [item.score for item in found.beam] == pytest.approx(
            [item.score for item in alone.beam], abs=1e-5
        )
