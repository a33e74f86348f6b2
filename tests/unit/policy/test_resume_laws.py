"""A session that is interrupted and goes on from its token is what it would have been."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earvoice.policies import Edatt, HoldN, LocalAgreement, WaitK
from earvoice.policies.base import Token
from earvoice.policy.event import SegmentWorked, UtteranceEnded
from earvoice.policy.stream_options import CommitUnit, Confidence, Endpointing, StreamOptions
from tests.fakes import ScriptedDecoder, ScriptedEncoder, make_token
from tests.unit.policy.every_policy import each_policy
from tests.unit.policy.running import (
    MAX_SAMPLES,
    MODEL,
    essence,
    interruptions,
    items_of,
    run_session,
    sent_again,
    through_token,
    voice_with_pauses,
    with_options,
)
from tests.unit.policy.test_history import TalkDecoder
from tests.unit.policy.test_laws import options_with, unstable_word


def check_every_interruption(
    messages, options, decoder, data, *, merged=False, transcript="", model=MODEL
) -> None:
    """Cut a session at some place; what was told by then and what is told after are the whole."""

    def run(messages, **changes):
        encoder = ScriptedEncoder(voice=voice_with_pauses, partial_transcript=transcript)
        return run_session(messages, options, encoder, decoder(), late=merged, **changes)

    whole = run(messages)
    places = interruptions(whole)
    if not places:
        return
    told_count, snapshot = data.draw(st.sampled_from(places))
    resumed = through_token(snapshot, model)
    if not any(isinstance(message, StreamOptions) for message in messages):
        assert resumed.options == options
    rest = run(sent_again(messages, resumed), resumed=resumed)
    assert essence([*whole[:told_count], *rest]) == essence(whole)


@each_policy
@given(
    seed=st.integers(0, 100),
    samples=st.integers(6000, MAX_SAMPLES),
    steps=st.integers(1, 4),
    unit=st.sampled_from(get_args(CommitUnit)),
    lag_ms=st.sampled_from([None, 600, 2000]),
    hypotheses=st.booleans(),
    data=st.data(),
)
def test_an_interrupted_session_says_the_same(
    parameters, seed, samples, steps, unit, lag_ms, hypotheses, data
):
    """Every policy, cut at any release or end of an utterance."""
    options = options_with(
        parameters,
        commit_unit=unit,
        target_lag_ms=lag_ms if parameters.has_lag_scale else None,
        sends_hypotheses=hypotheses,
        sends_source_transcript=True,
        endpointing=Endpointing(600, 5000),
    )
    check_every_interruption(
        [bytes(samples * 2)],
        options,
        lambda: ScriptedDecoder(word=unstable_word(seed), steps_per_answer=steps),
        data,
    )


@settings(max_examples=40, deadline=None)
@given(
    choices=st.lists(
        st.tuples(
            st.integers(0, 40_000),
            st.sampled_from(
                [
                    with_options(policy=HoldN(2), segment_ms=500),
                    with_options(policy=LocalAgreement(2)),
                    with_options(policy=LocalAgreement(3), segment_ms=1100),
                    with_options(policy=WaitK(2)),
                    with_options(policy=Edatt(0.5, 2, 1)),
                ]
            ),
        ),
        max_size=4,
    ),
    seed=st.integers(0, 100),
    lag_ms=st.sampled_from([None, 900]),
    data=st.data(),
)
def test_updates_keep_their_place(choices, seed, lag_ms, data):
    """What was changed before the interruption stays, what comes after is sent again."""
    messages = []
    for samples, options in choices:
        messages += [bytes(samples * 2), replace(options, target_lag_ms=lag_ms)]
    messages.append(bytes(60_000))
    check_every_interruption(
        messages,
        with_options(target_lag_ms=lag_ms),
        lambda: ScriptedDecoder(word=unstable_word(seed)),
        data,
    )


@pytest.mark.parametrize(
    "policy",
    [
        Edatt(0.5, 2, 1),
        LocalAgreement(3),
        WaitK(2),
        WaitK(2, detection="adaptive"),
    ],
    ids=["edatt", "local-agreement", "wait-k", "adaptive-wait-k"],
)
@settings(max_examples=15, deadline=None)
@given(
    samples=st.integers(30_000, 200_000),
    words=st.integers(1, 5),
    unit=st.sampled_from(get_args(CommitUnit)),
    data=st.data(),
)
def test_what_is_forgotten_stays_forgotten(policy, samples, words, unit, data):
    """With history selection the audio that is sent again begins within the utterance."""
    options = with_options(
        policy=policy,
        commit_unit=unit,
        endpointing=None,
        history_selection=words,
    )
    messages = [bytes(samples * 2)]
    whole = run_session(messages, options, ScriptedEncoder(), TalkDecoder())
    places = interruptions(whole)
    told_count, snapshot = data.draw(st.sampled_from(places))
    resumed = through_token(snapshot)
    again = sent_again(messages, resumed)
    rest = run_session(again, options, ScriptedEncoder(), TalkDecoder(), resumed=resumed)
    assert essence([*whole[:told_count], *rest]) == essence(whole)


def test_hypotheses_that_met_their_limit_are_counted_across_an_interruption():
    """Every one that was decided whole, before its words leave: no token lacks it."""
    options = with_options(policy=LocalAgreement(2), segment_ms=500, endpointing=None)

    def run(messages, **changes):
        return run_session(
            messages, options, ScriptedEncoder(), ScriptedDecoder(word=many_tokens), **changes
        )

    def many_tokens(number: int, state_count: int) -> list[Token]:
        row = (0.0,) * (state_count - 1) + (1.0,)
        return [make_token(10 + (number + i) % 7, attention=row) for i in range(30)]

    messages = [bytes(96_000)]
    whole = run(messages)
    assert whole[-1].guards_hit["hypothesis_length"] > 1
    for told_count, snapshot in interruptions(whole):
        resumed = through_token(snapshot)
        rest = run(sent_again(messages, resumed), resumed=resumed)
        assert rest[-1].guards_hit == whole[-1].guards_hit
        assert essence([*whole[:told_count], *rest]) == essence(whole)


def test_a_loop_is_counted_anew_once_words_are_released():
    """They may have been held back until then; a token does not know the count."""
    texts = ("abcd", "efgh", "ijkl")
    options = with_options(policy=HoldN(0), confidence=Confidence(least=0.5, by_agreement=True))

    class UnderstandsLate(ScriptedEncoder):
        async def encode(self, audio, end_sample=None):
            self.partial_transcript = "zzzz" if self.end_sample < 19_200 else " ".join(texts)
            return await super().encode(audio, end_sample)

    def looping(number: int, state_count: int) -> list[Token]:
        word = min(number, 2)
        row = tuple(float(state == word) for state in range(state_count))
        return [make_token(10 + word, texts[word], attention=row)]

    def run(messages, **changes):
        decoder = ScriptedDecoder(word=looping)
        return run_session(messages, options, UnderstandsLate(), decoder, **changes)

    messages = [bytes(144_000)]
    whole = run(messages)
    told_count, snapshot = interruptions(whole)[0]
    rest = run(sent_again(messages, snapshot), resumed=snapshot)
    assert essence([*whole[:told_count], *rest]) == essence(whole)


@each_policy
@given(
    seed=st.integers(0, 100),
    samples=st.integers(20_000, MAX_SAMPLES),
    unit=st.sampled_from(get_args(CommitUnit)),
    data=st.data(),
)
def test_a_late_machine_keeps_what_it_has_said(parameters, seed, samples, unit, data):
    """MERGE: committed text stays the prefix, and utterances still lie end to end."""
    options = options_with(
        parameters, commit_unit=unit, merges_segments=True, endpointing=Endpointing(600, 5000)
    )
    first = ScriptedDecoder(word=unstable_word(seed))
    piece = data.draw(st.integers(500, 20_000)) * 2
    audio = bytes(samples * 2)
    messages = [audio[at : at + piece] for at in range(0, len(audio), piece)]
    whole = run_session(messages, options, ScriptedEncoder(voice_with_pauses), first)
    places = interruptions(whole)
    if not places:
        return
    told_count, snapshot = data.draw(st.sampled_from(places))
    resumed = through_token(snapshot)
    second = ScriptedDecoder(word=unstable_word(seed))
    rest = run_session(
        [audio[2 * resumed.start_sample :]],
        options,
        ScriptedEncoder(voice_with_pauses),
        second,
        late=True,
        resumed=resumed,
    )
    events = [*whole[:told_count], *rest]
    ends = [event for event in events if isinstance(event, UtteranceEnded)]
    assert [(e.utterance, e.start_sample) for e in ends] == list(
        enumerate([0, *(e.end_sample for e in ends[:-1])])
    )
    assert ends[-1].end_sample == samples
    committed = tuple(token.token_id for token in resumed.utterance.kept)
    for request in second.requests:
        if request.states[0] == resumed.start_sample:
            assert request.prefix[: len(committed)] == committed
    totals = rest[-1]
    assert totals.item_count == len(items_of(events))
    assert totals.segment_count == sum(isinstance(event, SegmentWorked) for event in events)
