"""Rows of a beam are read as if each had a cache of its own."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from earvoice.models.config import ModelConfig
from earvoice.models.decoding import BeamCache, CachedDecoder
from tests.tiny_model import random_network

pytestmark = pytest.mark.torch

FORCED = [2, 7, 9, 4]
TOKENS = st.integers(4, 30)


@pytest.fixture(scope="module", params=[0, 1], ids=["decoder", "transducer"])
def decoder(config: ModelConfig, request: pytest.FixtureRequest) -> CachedDecoder:
    layers = replace(config.decoder, predictor_layers=request.param)
    return random_network(replace(config, decoder=layers)).decoder


def _states(count: int) -> torch.Tensor:
    return torch.randn(count, 32, generator=torch.Generator().manual_seed(count))


def _beam(decoder: CachedDecoder, states: torch.Tensor) -> BeamCache:
    cache = decoder.open_cache(states)
    decoder.prefill(FORCED, cache, 1)
    return BeamCache(cache)


@settings(max_examples=25, deadline=None)
@given(
    rounds=st.lists(
        st.lists(st.tuples(st.integers(0, 99), TOKENS), min_size=1, max_size=5),
        min_size=1,
        max_size=25,
    )
)
def test_rows_equal_hypotheses_of_their_own(
    decoder: CachedDecoder, rounds: list[list[tuple[int, int]]]
) -> None:
    """However rows are chosen, repeated and dropped: the logits of reading each one whole."""
    states = _states(7)
    beam, hypotheses = _beam(decoder, states), [FORCED]
    for choices in rounds:
        rows = [row % len(hypotheses) for row, _ in choices]
        tokens = [token for _, token in choices]
        beam.select(rows)
        hypotheses = [[*hypotheses[row], token] for row, token in zip(rows, tokens, strict=True)]
        logits, attention = decoder.step(tokens, [beam], [2])
    assert beam.position == len(hypotheses[0])
    for index, hypothesis in enumerate(hypotheses):
        expected, rows_alone = decoder.prefill(hypothesis, decoder.open_cache(states), 2)
        torch.testing.assert_close(logits[index], expected[-1], atol=1e-5, rtol=0)
        torch.testing.assert_close(attention[index], rows_alone[-1], atol=1e-5, rtol=0)


def test_dead_tokens_make_room(decoder: CachedDecoder) -> None:
    """A long search stores little more than the tokens its rows descend from."""
    beam, steps = _beam(decoder, _states(3)), 300
    for _ in range(steps):
        beam.select([0] * 4)
        decoder.step([5, 6, 7, 8], [beam], [1])
    live = len(FORCED) + steps
    assert beam.position == live
    assert beam.buffer.shape[3] < 4 * live


def test_beams_and_hypotheses_share_a_step(decoder: CachedDecoder) -> None:
    """A beam between two single hypotheses: each row gets what it would get alone."""
    states = [_states(count) for count in (5, 11, 8)]
    single = [decoder.open_cache(states[0]), decoder.open_cache(states[2])]
    for cache in single:
        decoder.prefill(FORCED, cache, 1)
    beam = _beam(decoder, states[1])
    beam.select([0, 0])
    caches = [single[0], beam, single[1]]
    logits, rows = decoder.step([5, 6, 7, 8], caches, [1, 2, 1], [(), (2,), (1, 2)])
    for index, (token, own) in enumerate(zip([5, 6, 7, 8], [0, 1, 1, 2], strict=True)):
        layer, heads = (2, (2,)) if own == 1 else (1, ())
        alone = decoder.open_cache(states[own])
        expected, attention = decoder.prefill([*FORCED, token], alone, layer, heads)
        torch.testing.assert_close(logits[index], expected[-1], atol=1e-5, rtol=0)
        torch.testing.assert_close(rows[index], attention[-1], atol=1e-5, rtol=0)
