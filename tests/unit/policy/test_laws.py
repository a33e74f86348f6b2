"""Laws that hold for every policy and any audio."""

from __future__ import annotations

import itertools
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from earvoice.policies import DecisionPolicy
from earvoice.policy.guards import LOOP_REPETITION_COUNT
from earvoice.policy.stream_options import CommitUnit, StreamOptions
from tests.fakes import ScriptedDecoder, ScriptedEncoder, make_token
from tests.unit.policy.every_policy import each_policy
from tests.unit.policy.running import (
    MAX_SAMPLES,
    items_of,
    run_session,
    voice_with_pauses,
    with_options,
)


def options_with(parameters: DecisionPolicy, **changes) -> StreamOptions:
    """A stream with this policy, and with the segments and the beam that it needs."""
    segment_ms, initial_wait_ms = parameters.required_segment_ms or (800, 0)
    return with_options(
        policy=parameters,
        segment_ms=segment_ms,
        initial_wait_ms=initial_wait_ms,
        beam_size=2 if parameters.reads_beam else 1,
        **changes,
    )


def unstable_word(seed: int):
    """Words that change with the audio heard, as a real model's do; some end a sentence."""

    def word(number: int, states: int):
        changing = number >= states // 4 - 1
        token_id = 10 + (number * 7 + seed + (states if changing else 0)) % 40
        place = min(number * 4 + seed % 4, states - 1)
        row = tuple(float(i == place) for i in range(states))
        starts = (number + seed) % 3 > 0
        text = f"w{token_id}." if token_id % 3 == 0 else f"w{token_id}"
        return [make_token(token_id, text, starts=starts, attention=row)]

    return word


@each_policy
@given(
    seed=st.integers(0, 100),
    samples=st.integers(0, 60_000),
    cuts=st.lists(st.integers(0, 60_000), max_size=12),
    steps=st.integers(1, 4),
    unit=st.sampled_from(get_args(CommitUnit)),
)
def test_the_text_does_not_depend_on_how_audio_is_cut(parameters, seed, samples, cuts, steps, unit):
    """EVERY_SEGMENT: any cutting into messages gives the same items, delays included."""
    options = options_with(parameters, commit_unit=unit)
    audio = bytes(samples * 2)
    borders = sorted({0, samples, *(cut for cut in cuts if cut < samples)})
    pieces = [audio[2 * a : 2 * b] for a, b in itertools.pairwise(borders)]

    def items(messages):
        decoder = ScriptedDecoder(word=unstable_word(seed), steps_per_answer=steps)
        return [
            (item.text, item.starts_word, item.utterance, item.delay_samples)
            for item in items_of(run_session(messages, options, decoder=decoder))
        ]

    assert items(pieces) == items([audio] if audio else [])


@each_policy
@given(seed=st.integers(0, 100), samples=st.integers(0, MAX_SAMPLES), steps=st.integers(2, 9))
def test_the_text_does_not_depend_on_what_comes_behind_a_decision(parameters, seed, samples, steps):
    """Neither tokens that a verified draft brings at once, nor a hypothesis asked for whole."""

    def items(steps_per_answer, **changes):
        decoder = ScriptedDecoder(word=unstable_word(seed), steps_per_answer=steps_per_answer)
        encoder = ScriptedEncoder(voice=voice_with_pauses)
        options = options_with(parameters, **changes)
        events = run_session([bytes(samples * 2)] if samples else [], options, encoder, decoder)
        return [
            (item.text, item.starts_word, item.utterance, item.delay_samples)
            for item in items_of(events)
        ]

    assert items(1) == items(steps) == items(1, sends_hypotheses=True)


@each_policy
@given(seed=st.integers(0, 100), samples=st.integers(0, 60_000), merge=st.booleans())
def test_the_forced_prefix_only_grows(parameters, seed, samples, merge):
    """Within an utterance each generation's prefix starts with the one before."""
    decoder = ScriptedDecoder(word=unstable_word(seed))
    options = options_with(parameters, merges_segments=merge, endpointing=None)
    run_session([bytes(samples * 2)] if samples else [], options, decoder=decoder)
    prefixes = [list(request.prefix) for request in decoder.requests]
    for earlier, later in itertools.pairwise(prefixes):
        assert later[: len(earlier)] == earlier


@each_policy
@given(
    samples=st.integers(0, 60_000),
    seed=st.integers(0, 100),
    unit=st.sampled_from(get_args(CommitUnit)),
)
def test_the_guards_outrank_every_policy(parameters, samples, seed, unit):
    """A decoder that says one word for ever is cut, whatever the policy would commit."""
    decoder = ScriptedDecoder(
        word=lambda number, states: [make_token(10 + seed, attention=(1.0,) * states)]
    )
    options = options_with(parameters, commit_unit=unit, endpointing=None)
    events = run_session([bytes(samples * 2)] if samples else [], options, decoder=decoder)
    assert len(items_of(events)) <= LOOP_REPETITION_COUNT
