"""Drafts and company change nothing but the time it takes."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from earvoice.decoder.loading import LoadedDecoder, load_decoder
from earvoice.decoder.settings import DecoderSettings
from earvoice.decoder.strategy import PredictedToken, Prompt, block_of
from tests.integration.decoder.caller import Hypothesis, attention_of
from tests.integration.decoder.conftest import RunningDecoder, random_states
from tests.tiny_model import write_tiny_checkpoint

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", params=["from states", "from another language"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedDecoder:
    path = tmp_path_factory.mktemp("laws")
    write_tiny_checkpoint(path, translating=request.param == "from another language")
    return load_decoder(DecoderSettings(model_path=path, device="cpu"))


END = 2
LENGTH = 30
seeds = st.integers(0, 10_000)
tokens = st.integers(0, 63)


def decode(tiny: LoadedDecoder, seed: int, opening: Prompt) -> list[PredictedToken]:
    """Greedy choices over random states, at most LENGTH."""
    states = random_states(seed)
    run, begun = tiny.strategy.begin(block_of(states), opening)
    choices = begun.tokens
    while choices[-1].token != END and len(choices) < LENGTH:
        choices += tiny.strategy.step([run])[0].tokens
    return choices[:LENGTH]


def until_near_tie(choices: Sequence[PredictedToken]) -> int:
    """How many first choices are beyond doubt."""
    return next((i for i, choice in enumerate(choices) if choice.near_tie), len(choices))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=seeds,
    prefix=st.lists(tokens, max_size=5),
    corruptions=st.lists(st.tuples(st.integers(0, LENGTH), tokens), max_size=3),
    length=st.integers(0, LENGTH + 3),
    forbid_end=st.booleans(),
)
def test_any_draft_gives_plain_greedy_tokens(
    tiny: LoadedDecoder,
    seed: int,
    prefix: list[int],
    corruptions: list[tuple[int, int]],
    length: int,
    forbid_end: bool,
) -> None:
    """Corrupted, cut or too long: a draft gives the tokens of plain greedy, and its numbers."""
    forced = (END, *prefix)
    plain = decode(tiny, seed, Prompt(forced, (), 2, forbid_end))
    draft = [choice.token for choice in plain]
    for place, token in corruptions:
        draft[place : place + 1] = [token]
    # A token of a language in the second place is for other layers.
    assume((*forced, *draft[:length])[:2] != tiny.strategy.source_prompt)
    drafted = decode(tiny, seed, Prompt(forced, tuple(draft[:length]), 2, forbid_end))
    sure = until_near_tie(plain)
    assert [c.token for c in drafted[:sure]] == [c.token for c in plain[:sure]]
    for one, other in zip(plain[:sure], drafted[:sure], strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)
        np.testing.assert_allclose(one.attention, other.attention, atol=1e-5)
    assert not (forbid_end and END in [c.token for c in drafted])


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=seeds, cut=st.integers(0, LENGTH))
def test_forced_prefix_goes_on_as_greedy_would(tiny: LoadedDecoder, seed: int, cut: int) -> None:
    """Forcing what greedy chose does not change what it chooses next.

    Where a text is forced, what it is a translation of is not empty.
    """
    block = block_of(random_states(seed))
    tiny.strategy.begin(block, Prompt((END,), (), 2, forbid_end=True))
    if block.source_text == [END]:
        return
    plain = decode(tiny, seed, Prompt((END,), (), 2, forbid_end=True))
    forced = (END, *(choice.token for choice in plain[:cut]))
    rest = decode(tiny, seed, Prompt(forced, (), 2, forbid_end=True))
    if until_near_tie(plain) == len(plain):
        assert [c.token for c in rest[: LENGTH - cut]] == [c.token for c in plain[cut:]]


async def hypothesis_of(decoder: RunningDecoder, seed: int, layer: int) -> Hypothesis:
    """What one session answers for a seed's states."""
    caller = decoder.caller()
    await caller.open(attention_layer=layer)
    await caller.states(random_states(seed))
    found = await caller.generate(1, forbid_end_of_sequence=True, max_new_tokens=80)
    await caller.close()
    return found


async def test_batch_of_sessions_equals_each_alone(decoder: RunningDecoder) -> None:
    """Ten concurrent sessions of different layers give what each gives alone."""
    seeds_and_layers = [(seed, 1 + seed % 3) for seed in range(20, 30)]
    together = await asyncio.gather(*(hypothesis_of(decoder, *each) for each in seeds_and_layers))
    shared = [m.timings.batch_size > 1 for found in together for m in found.messages]
    assert any(shared)
    sure = 0
    for each, found in zip(seeds_and_layers, together, strict=True):
        alone = await hypothesis_of(decoder, *each)
        if alone.done.near_tie_count:
            continue
        sure += 1
        assert found.done.near_tie_count == 0
        assert found.tokens == alone.tokens
        np.testing.assert_allclose(
            [step.log_probability for step in found.steps],
            [step.log_probability for step in alone.steps],
            atol=1e-5,
        )
        np.testing.assert_allclose(attention_of(found.steps), attention_of(alone.steps), atol=1e-5)
    assert sure > len(together) // 2
