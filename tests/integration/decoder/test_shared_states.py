"""What is computed of encoder states is computed once a revision."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from earvoice.decoder.loading import load_decoder
from earvoice.decoder.search import SearchStrategy
from earvoice.decoder.settings import DecoderSettings
from earvoice.decoder.strategy import BeamPlan, Prompt, StateBlock, block_of
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.decoding import Pivot
from earvoice.models.vocabulary import EOS
from earvoice.runtime.errors import InvalidFieldError
from tests.integration.decoder.caller import attention_of
from tests.integration.decoder.conftest import Serve, random_states
from tests.tiny_model import write_tiny_checkpoint

pytestmark = pytest.mark.torch

OPENING = Prompt((2, 5, 7), (), 1, forbid_end=True)


class CountingDecoder:
    """A decoder that counts how often states are taken in."""

    def __init__(self, path: Path) -> None:
        self._decoder = load_checkpoint(path).network.decoder
        self.opened = 0
        self.read: list[list[int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def open_cache(self, states: torch.Tensor, tokens: Sequence[int], pivot: Pivot | None) -> Any:
        self.opened += 1
        return self._decoder.open_cache(states, tokens, pivot)

    def prefill(self, tokens: list[int], *args: Any, **named: Any) -> Any:
        self.read.append(tokens)
        return self._decoder.prefill(tokens, *args, **named)


@pytest.fixture
def decoder(tiny_path: Path) -> CountingDecoder:
    return CountingDecoder(tiny_path)


@pytest.fixture
def strategy(decoder: CountingDecoder) -> SearchStrategy:
    return SearchStrategy(decoder)  # type: ignore[arg-type]


def test_generations_share_keys_and_values(decoder: CountingDecoder, strategy: SearchStrategy):
    """Greedy, again, and a beam on one revision: one computation, and the same tokens each time."""
    states = block_of(torch.randn(9, decoder.config.encoder.d_model).numpy())
    first, second = (strategy.begin(states, OPENING) for _ in range(2))
    strategy.begin(states, replace(OPENING, beam=BeamPlan(3, max_new_tokens=2)))
    assert decoder.opened == 1
    assert first[1] == second[1]
    # Each has tokens of its own.
    first[0].last_tokens = [9]
    strategy.step([first[0]])
    other = strategy.begin(states, OPENING)[0]
    assert strategy.step([second[0]]) == strategy.step([other])


def test_prefixes_share_keys_and_values(decoder: CountingDecoder, strategy: SearchStrategy):
    """Without a language token, the second token is the first word, which changes nothing."""
    states = block_of(torch.randn(9, decoder.config.encoder.d_model).numpy())
    for prefix in ((), (5,), (6, 7)):
        strategy.begin(states, replace(OPENING, forced=(EOS, *prefix)))
    assert decoder.opened == 1


def test_another_revision_is_computed_anew(decoder: CountingDecoder, strategy: SearchStrategy):
    """States are known by who they are; what nobody holds any more is forgotten."""
    states = block_of(torch.randn(9, decoder.config.encoder.d_model).numpy())
    copy = replace(states)
    for block in (states, copy):
        strategy.begin(block, OPENING)
    assert decoder.opened == 2
    del states, copy, block
    gc.collect()
    assert len(strategy._memories) == 0


def test_what_was_written_in_the_source_language_is_expected_again(tmp_path: Path) -> None:
    """It saves time and changes nothing; states of another utterance begin with nothing."""
    write_tiny_checkpoint(tmp_path, translating=True)
    counting = CountingDecoder(tmp_path)
    strategy = SearchStrategy(counting)  # type: ignore[arg-type]
    rows = torch.randn(9, counting.config.encoder.d_model).numpy()
    before = block_of(rows[:6])
    strategy.begin(before, OPENING)
    assert counting.read[0] == [*counting.pivot_prompt]
    alone, after = block_of(rows), StateBlock(block_of(rows).message, before.source_text)
    (expected,) = strategy.begin(alone, OPENING)[1].tokens
    earlier = list(before.source_text)
    counting.read.clear()
    (found,) = strategy.begin(after, OPENING)[1].tokens
    assert found.token == expected.token
    assert found.attention == pytest.approx(expected.attention, abs=1e-5)
    assert counting.read[0] == [*counting.pivot_prompt, *earlier]
    assert after.source_text == before.source_text == alone.source_text


@pytest.mark.parametrize("final", [False, True])
def test_what_is_translated_is_not_empty_where_that_is_unlikely(
    tmp_path: Path, *, final: bool
) -> None:
    """As what is written of the states alone, once all has been heard."""
    write_tiny_checkpoint(tmp_path, translating=True)
    decoder = load_checkpoint(tmp_path).network.transformer_decoder
    shape = replace(decoder.config.decoder, least_empty_probability=1.0)
    decoder.config = replace(decoder.config, decoder=shape)
    own = decoder.stack_of(decoder.pivot_prompt)
    with torch.no_grad():
        own.layer_norm.weight.zero_()
        own.layer_norm.bias.copy_(decoder.embed_tokens.weight[EOS])
    block = block_of(random_states(1, 9), final=final)
    SearchStrategy(decoder).begin(block, Prompt((2, 5), (), 1, forbid_end=True))
    assert (block.source_text == [EOS]) == (not final)


def test_a_translation_of_nothing_is_empty(tmp_path: Path) -> None:
    """However sure it should be that there is nothing: that shows in what it translates."""
    write_tiny_checkpoint(tmp_path, translating=True)
    decoder = load_checkpoint(tmp_path).network.transformer_decoder
    strategy = SearchStrategy(decoder)
    weight = decoder.embed_tokens.weight
    wanted = functional.one_hot(torch.tensor([EOS]), len(weight)).T.float()
    for stack in (decoder, decoder.stack_of(decoder.pivot_prompt)):
        with torch.no_grad():
            stack.layer_norm.weight.zero_()
            stack.layer_norm.bias.copy_(torch.linalg.lstsq(weight, 9 * wanted).solution[:, 0])
    opening = Prompt((2, 5), (), 1, forbid_end=False, least_end_probability=1.0)
    for beam in (None, BeamPlan(3, max_new_tokens=4)):
        block = block_of(random_states(1, 9), final=True)
        run, found = strategy.begin(block, replace(opening, beam=beam))
        while beam and not found.beam:
            (found,) = strategy.step([run])
        assert block.source_text == [EOS]
        first = (found.beam[0].tokens if beam else found.tokens)[0]
        assert first.token == EOS


def test_what_is_translated_is_written_of_many_states_at_once(tmp_path: Path) -> None:
    """Step by step beside other texts and searches; each is what it would be alone."""
    write_tiny_checkpoint(tmp_path, translating=True)
    strategy = SearchStrategy(load_checkpoint(tmp_path).network.transformer_decoder)
    blocks = [block_of(random_states(seed, 9)) for seed in range(4)]
    alone = [strategy.begin(replace(block, source_text=[]), OPENING)[1] for block in blocks]
    searching, _ = strategy.begin(blocks[0], OPENING)
    sources = [strategy.prepare(block, OPENING.forced) for block in blocks]
    assert sources[0] is None, "it is known"
    running = [source for source in sources if source is not None]
    assert len(running) == len(blocks) - 1
    while running := [source for source in running if not source.is_over]:
        strategy.step([searching, *running])
    for block, expected in zip(blocks, alone, strict=True):
        assert strategy.prepare(block, OPENING.forced) is None
        found = strategy.begin(block, OPENING)[1]
        assert [each.token for each in found.source] == [each.token for each in expected.source]
        assert found.tokens[0].token == expected.tokens[0].token
        assert found.tokens[0].attention == pytest.approx(expected.tokens[0].attention, abs=1e-5)


async def test_sessions_that_translate_at_once_find_what_they_find_alone(
    tmp_path: Path, serve: Serve
) -> None:
    write_tiny_checkpoint(tmp_path, translating=True)
    loaded = load_decoder(DecoderSettings(model_path=tmp_path, device="cpu"))
    running = await serve(loaded.model, loaded.strategy)
    callers = [running.caller() for _ in range(4)]
    for seed, caller in enumerate(callers):
        await caller.open()
        await caller.states(random_states(seed, 9))
    alone = [await caller.generate(1, max_new_tokens=9) for caller in callers]
    # Of the utterance before, each text would be a draft that stands as a whole.
    again = [running.caller() for _ in callers]
    for seed, caller in enumerate(again):
        await caller.open()
        await caller.states(random_states(seed, 9))
    together = await asyncio.gather(*(caller.generate(1, max_new_tokens=9) for caller in again))
    for one, other in zip(alone, together, strict=True):
        assert other.tokens == one.tokens
        assert [step.token for step in other.messages[0].source] == [
            step.token for step in one.messages[0].source
        ]
        np.testing.assert_allclose(attention_of(other.steps), attention_of(one.steps), atol=1e-5)
    for caller in (*callers, *again):
        await caller.close()


def test_states_too_large_for_what_is_translated_are_refused(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, translating=True)
    strategy = SearchStrategy(load_checkpoint(tmp_path).network.transformer_decoder)
    with pytest.raises(InvalidFieldError, match="numbers too large"):
        strategy.begin(block_of(np.full((9, 32), 1e38, np.float32)), OPENING)


async def test_a_translation_tells_what_it_translates(tmp_path: Path, serve: Serve) -> None:
    """In the first message alone, to its end, as the source language's layers write it."""
    write_tiny_checkpoint(tmp_path, translating=True)
    loaded = load_decoder(DecoderSettings(model_path=tmp_path, device="cpu"))
    strategy, states = loaded.strategy, random_states(3, 9)
    assert isinstance(strategy, SearchStrategy)
    written = strategy.begin(block_of(states), replace(OPENING, forced=(2,)))[1].source
    caller = (await serve(loaded.model, strategy)).caller()
    await caller.open()
    await caller.states(states)
    for fields in ({}, {"beam_size": 3}):
        found = await caller.generate(1 + bool(fields), max_new_tokens=6, **fields)
        first, *others = found.beams or found.messages
        assert [step.token for step in first.source] == [choice.token for choice in written]
        told = [step.log_probability for step in first.source]
        assert told == pytest.approx([choice.log_probability for choice in written], abs=1e-5)
        assert not any(message.source for message in others)
    await caller.close()
