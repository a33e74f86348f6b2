"""Beams, heads and prefix rows over the wire."""

import asyncio
from typing import Any

import numpy as np
import pytest

from earvoice.api.v1 import decoder_service_pb2 as pb
from earvoice.decoder.loading import LoadedDecoder
from earvoice.decoder.strategy import BeamPlan
from tests.integration.decoder.caller import Caller, Hypothesis, Reason, attention_of
from tests.integration.decoder.conftest import RunningDecoder, random_states
from tests.integration.decoder.searching import END, beam_opening, search

pytestmark = pytest.mark.torch

STATES = random_states(3, 9)
PREFIX = (7, 9, 11)


async def opened(decoder: RunningDecoder, **fields: Any) -> Caller:
    caller = decoder.caller()
    await caller.open(**fields)
    await caller.states(STATES)
    return caller


async def answers(decoder: RunningDecoder, opening: dict[str, Any], **fields: Any) -> Hypothesis:
    caller = await opened(decoder, **opening)
    found = await caller.generate(1, **fields)
    await caller.close()
    return found


@pytest.mark.parametrize("told", [1, 4])
async def test_beam_comes_whole_before_the_end(
    decoder: RunningDecoder, tiny: LoadedDecoder, told: int
) -> None:
    """One message, no steps; the best alone or all; the same as the search without a service."""
    caller = await opened(decoder, beam_size=4)
    found = await caller.generate(1, prefix=PREFIX, all_hypotheses=told > 1, max_new_tokens=12)
    (beam,) = found.beams
    plan = BeamPlan(4, 12, all_hypotheses=True)
    expected = search(tiny.strategy, STATES, beam_opening((END, *PREFIX), plan, 2)).beam[:told]
    assert not found.messages
    for hypothesis, item in zip(beam.hypotheses, expected, strict=True):
        assert [step.token for step in hypothesis.steps] == [c.token for c in item.tokens]
        assert [step.index for step in hypothesis.steps] == [*range(3, 3 + len(item.tokens))]
        assert hypothesis.score == pytest.approx(item.score, abs=1e-5)
    best = beam.hypotheses[0].steps
    ended = best[-1].end_of_sequence
    assert found.done.reason == (Reason.REASON_END_OF_SEQUENCE if ended else Reason.REASON_LIMIT)
    assert found.done.step_count == len(best)
    assert beam.timings.compute_ms > 0
    await caller.close()


async def test_generation_may_be_greedy_in_a_session_of_beams(decoder: RunningDecoder) -> None:
    """The beam size of a generation replaces that of open, for this generation."""
    caller = await opened(decoder, beam_size=3)
    greedy = await caller.generate(1, beam_size=1)
    beam = await caller.generate(2)
    assert greedy.messages
    assert not greedy.beams
    assert len(beam.beams) == 1
    await caller.close()


@pytest.mark.parametrize("beam_size", [1, 3])
async def test_mean_over_heads_is_the_mean_of_each(decoder: RunningDecoder, beam_size: int) -> None:
    """Heads chosen at open or for a generation; four of them make the default."""
    common = {"beam_size": beam_size, "prefix": PREFIX, "prefix_attention": True}
    caller = await opened(decoder, attention_layer=3)
    mean = await caller.generate(1, **common)
    each = [
        await caller.generate(1 + head, attention_layer=3, attention_heads=[head], **common)
        for head in (1, 2, 3, 4)
    ]
    await caller.close()
    for rows in (steps_attention, prefix_attention):
        parts = [rows(found) for found in each]
        assert not np.allclose(parts[0], parts[1], atol=1e-3)
        np.testing.assert_allclose(np.mean(parts, axis=0), rows(mean), atol=1e-6)
    at_open = await answers(decoder, {"attention_layer": 3, "attention_heads": [2]}, **common)
    np.testing.assert_allclose(steps_attention(at_open), steps_attention(each[1]), atol=1e-6)


async def test_prefix_rows_are_those_of_predicting_it(decoder: RunningDecoder) -> None:
    """Forcing what greedy chose: the rows are those it had when it chose them."""
    caller = await opened(decoder)
    free = await caller.generate(1, forbid_end_of_sequence=True, max_new_tokens=8)
    tokens = free.tokens[:5]
    forced = await caller.generate(2, prefix=tokens, prefix_attention=True, max_new_tokens=3)
    beam = await caller.generate(
        3, prefix=tokens, prefix_attention=True, max_new_tokens=3, beam_size=2
    )
    assert not free.messages[0].prefix_attention
    assert all(not message.prefix_attention for message in forced.messages[1:])
    for found in (forced, beam):
        np.testing.assert_allclose(prefix_attention(found), attention_of(free.steps[:5]), atol=1e-5)
    await caller.close()


async def test_language_token_has_no_prefix_row(decoder: RunningDecoder) -> None:
    """A row for each token of the prefix, whatever is forced before it."""
    caller = decoder.caller()
    await caller.open("fr")
    await caller.states(STATES)
    found = await caller.generate(1, prefix=PREFIX, prefix_attention=True, max_new_tokens=2)
    rows = prefix_attention(found)
    assert rows.shape == (3, 9)
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-5)
    await caller.close()


async def test_halted_beam_ends_without_a_result(decoder: RunningDecoder) -> None:
    """A halt between steps ends the search."""
    caller = await opened(decoder, beam_size=16)
    await caller.request(1, max_new_tokens=1024, forbid_end_of_sequence=True)
    await caller.write(halt=pb.Halt(generation_id=1))
    found = await caller.hypothesis(1)
    assert found.done.reason == Reason.REASON_HALTED
    assert not found.beams
    assert (await caller.generate(2, beam_size=1, max_new_tokens=3)).steps
    await caller.close()


async def test_greedy_and_beam_sessions_share_batches(decoder: RunningDecoder) -> None:
    """Sessions of both kinds at the same time get what each gets alone."""
    wanted = [{"beam_size": size} for size in (1, 5, 1, 3, 1, 2)]
    fields = {"forbid_end_of_sequence": True, "max_new_tokens": 60}
    together = await asyncio.gather(*(answers(decoder, each, **fields) for each in wanted))
    shared = 0
    for each, found in zip(wanted, together, strict=True):
        alone = await answers(decoder, each, **fields)
        shared += found.done.timings.batch_size > 1
        if not alone.done.near_tie_count:
            assert best_tokens(found) == best_tokens(alone)
    assert shared


def best_tokens(found: Hypothesis) -> list[int]:
    steps = found.beams[0].hypotheses[0].steps if found.beams else found.steps
    return [step.token for step in steps]


def steps_attention(found: Hypothesis) -> np.ndarray:
    return attention_of(found.beams[0].hypotheses[0].steps if found.beams else found.steps)


def prefix_attention(found: Hypothesis) -> np.ndarray:
    first = found.beams[0] if found.beams else found.messages[0]
    return np.array([list(row.weights) for row in first.prefix_attention])
