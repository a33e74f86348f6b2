"""History selection: what of an endless utterance is kept, and what the session does with it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earvoice.policies import AlignAtt, Edatt, HoldN, LocalAgreement, WaitK
from earvoice.policies.base import Token
from earvoice.policy.backend import GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.event import SegmentWorked, UtteranceEnded, WordsReleased
from earvoice.policy.history import dropped_token_count, first_attended_sample
from earvoice.policy.session import SegmentObserver
from earvoice.policy.stream_options import CommitUnit
from earvoice.policy.timeline import HopTimings, SegmentTimeline
from tests.fakes import (
    RATE_HERTZ,
    STATE_SAMPLES,
    ScriptedEncoder,
    make_token,
)
from tests.unit.policy.running import items_of, run_session, seconds, with_options

FIRST_ID = 10
STATES_PER_WORD = 4
LAST_THREE = 3


def word_at(block: int, start_state: int, state_count: int) -> Token:
    """The word said in a block of four states, attending to the block's middle and about it."""
    place = block * STATES_PER_WORD + 2 - start_state
    weights = [1 / (1 + abs(state - place)) for state in range(state_count)]
    row = tuple(weight / sum(weights) for weight in weights)
    return make_token(FIRST_ID + block, attention=row)


@dataclass
class TalkDecoder:
    """Says the word of each block of the audio that it is given, and goes on from the prefix."""

    requests: list[GenerationRequest] = field(default_factory=list)
    halts: int = 0
    replay_count: int = 0

    async def generate(
        self, request: GenerationRequest
    ) -> AsyncIterator[GenerationSteps | GenerationEnd]:
        self.requests.append(request)
        halts = self.halts
        start_sample, state_count = request.states  # type: ignore[misc]
        start_state = start_sample // STATE_SAMPLES
        first = start_state // STATES_PER_WORD
        if request.prefix:
            first = request.prefix[-1] - FIRST_ID + 1
        last = (start_state + state_count) // STATES_PER_WORD
        rows = [
            word_at(token - FIRST_ID, start_state, state_count).attention
            for token in request.prefix
            if request.prefix_attention
        ]
        timings = HopTimings(1.0, 1.0, 1.0)
        for block in range(first, last + 1):
            token = word_at(block, start_state, state_count)
            yield GenerationSteps([token], None, timings, prefix_attention=rows)
            rows = []
            if self.halts > halts:
                yield GenerationEnd(False, timings)
                return
        yield GenerationSteps([], make_token(2, attention=(1.0,) * state_count), timings)
        yield GenerationEnd(False, timings)

    def halt(self) -> None:
        self.halts += 1

    async def keep_alive(self) -> None:
        """Nobody's patience ends here."""


def run_talk(length_s: float, messages=None, encoder=None, **changes):
    """A talk without a pause, endpointing off; returns the events and the decoder's requests."""
    decoder = TalkDecoder()
    options = with_options(
        **{"endpointing": None, "history_selection": LAST_THREE, "uses_guards": True} | changes
    )
    whole = [seconds(10)] * int(length_s // 10) + [seconds(length_s % 10)]
    events = run_session(messages or whole, options, encoder, decoder)  # type: ignore[arg-type]
    return events, decoder.requests


def state_counts(requests) -> list[int]:
    return [request.states[1] for request in requests]


def test_the_last_words_are_kept_whole():
    """Later pieces stay with their word; a text shorter than that is kept."""
    pieces = [make_token(i, starts=i % 2 == 0) for i in range(7)]
    assert dropped_token_count(2, pieces) == 4
    assert dropped_token_count(4, pieces) == 0
    assert dropped_token_count(9, pieces) == 0
    assert dropped_token_count(1, []) == 0


def test_what_follows_the_last_end_of_a_sentence_is_kept():
    """A mark inside a number ends nothing; one at the end of the text leaves nothing."""
    texts = [("Es", True), (".", False), ("Um", True), ("3", True), (".", False), ("5", False)]
    tokens = [make_token(i, text, starts=starts) for i, (text, starts) in enumerate(texts)]
    assert dropped_token_count("last sentence", tokens) == 2
    assert dropped_token_count("last sentence", tokens[:2]) == 2
    assert dropped_token_count("last sentence", tokens[2:]) == 0
    other_script = [make_token(0, "है।"), make_token(1, "यह")]
    assert dropped_token_count("last sentence", other_script) == 1


def test_a_sentence_without_an_end_is_cut_at_a_word():
    """The model may write no punctuation at all."""
    tokens = [make_token(i, starts=i % 3 == 0) for i in range(200)]
    dropped = dropped_token_count("last sentence", tokens)
    assert dropped == 102
    assert tokens[dropped].starts_word


def test_the_earliest_state_attended_most_is_kept():
    """Each row's last state does not count: attention piles up there."""
    evidence = ScriptedEncoder()._encoded(5 * STATE_SAMPLES).evidence
    rows = [(0.0, 0.1, 0.2, 0.1, 0.6), (0.1, 0.1, 0.1, 0.5, 0.2)]
    assert first_attended_sample(rows, evidence, 0) == 2 * STATE_SAMPLES
    assert first_attended_sample([], evidence, 0) is None


@pytest.mark.parametrize(
    "policy",
    [
        Edatt(0.5, 2, 1),
        AlignAtt(4, 1),
        LocalAgreement(2),
        HoldN(2),
        WaitK(2),
        WaitK(2, detection="adaptive"),
    ],
)
def test_an_endless_utterance_costs_no_more_with_time(policy):
    """Three minutes without a pause: states stay few, and every word comes once, in order."""
    events, requests = run_talk(180, policy=policy)
    assert max(state_counts(requests)) < 120
    assert max(len(request.prefix) for request in requests) <= 3
    texts = [item.text for item in items_of(events)]
    assert texts == [f"w{FIRST_ID + block}" for block in range(len(texts))]
    assert len(texts) * STATES_PER_WORD * STATE_SAMPLES >= 179 * RATE_HERTZ
    assert [event.cause for event in events if isinstance(event, UtteranceEnded)] == [
        "end_of_audio"
    ]


@pytest.mark.parametrize("n", [2, 3])
def test_agreement_goes_on_over_what_is_forgotten(n: int):
    """Words come as soon as they would with everything kept."""
    kept, _ = run_talk(30, policy=LocalAgreement(n), history_selection=None)
    forgotten, _ = run_talk(30, policy=LocalAgreement(n))
    assert [(i.text, i.delay_samples) for i in items_of(forgotten)] == [
        (i.text, i.delay_samples) for i in items_of(kept)
    ]


def test_the_encoder_begins_anew_at_the_first_sample_that_is_kept():
    """The same utterance goes on, and the audio is sent again from there."""
    encoder = ScriptedEncoder()
    events, _ = run_talk(8, encoder=encoder)
    resets = [call for call in encoder.calls if call[0] == "reset"]
    assert resets
    assert {call[1] for call in resets} == {0}
    starts = [call[2] for call in resets]
    assert starts == sorted(set(starts))
    acknowledged = [e.acknowledged_samples for e in events if isinstance(e, WordsReleased)]
    assert acknowledged == sorted(acknowledged)
    assert acknowledged[-1] == starts[-1]


def test_positions_of_words_are_the_session_s():
    """Each word's audio is where it was said, however much has been forgotten."""
    events, _ = run_talk(30)
    for item in items_of(events)[:-2]:
        state = (int(item.text[1:]) - FIRST_ID) * STATES_PER_WORD + 2
        assert item.source_start_sample <= state * STATE_SAMPLES < item.source_end_sample


def test_an_utterance_is_told_from_where_it_began():
    """Its bounds do not move with what is kept."""
    events, _ = run_talk(10)
    ended = [event for event in events if isinstance(event, UtteranceEnded)]
    assert [(event.start_sample, event.end_sample) for event in ended] == [(0, 10 * RATE_HERTZ)]


def test_text_alone_is_forgotten_where_all_audio_is_attended_to():
    """One token that looks back to the beginning keeps the audio."""

    class NostalgicDecoder(TalkDecoder):
        async def generate(self, request):
            async for answer in super().generate(request):
                if isinstance(answer, GenerationSteps) and answer.tokens:
                    first = (0.9, *answer.tokens[0].attention[1:])
                    tokens = [make_token(answer.tokens[0].token_id, attention=first)]
                    yield GenerationSteps(
                        tokens, None, answer.timings, prefix_attention=answer.prefix_attention
                    )
                else:
                    yield answer

    encoder, decoder = ScriptedEncoder(), NostalgicDecoder()
    options = with_options(endpointing=None, history_selection=LAST_THREE, policy=HoldN(1))
    events = run_session([seconds(35)] * 2, options, encoder, decoder)  # type: ignore[arg-type]
    assert max(len(request.prefix) for request in decoder.requests) <= 3
    ended = [event for event in events if isinstance(event, UtteranceEnded)]
    assert ended[0].cause == "forced"
    assert max(event.end_sample - event.start_sample for event in ended) <= 40 * RATE_HERTZ


def test_what_is_kept_does_not_depend_on_what_comes_behind_a_decision():
    """A verified draft brings a guess that looks back to the beginning; halted, it never comes."""

    class GuessingDecoder(TalkDecoder):
        async def generate(self, request):
            answers = [answer async for answer in super().generate(request)]
            steps = [answer for answer in answers if isinstance(answer, GenerationSteps)]
            guess = make_token(FIRST_ID - 1, attention=(1.0, *[0.0] * (request.states[1] - 1)))
            tokens = [*(token for each in steps for token in each.tokens), guess]
            rows = steps[0].prefix_attention
            yield GenerationSteps(tokens, None, steps[0].timings, prefix_attention=rows)
            yield answers[-1]

    _, one_by_one = run_talk(12)
    decoder = GuessingDecoder()
    options = with_options(endpointing=None, history_selection=LAST_THREE)
    run_session([seconds(10), seconds(2)], options, decoder=decoder)  # type: ignore[arg-type]
    assert state_counts(decoder.requests) == state_counts(one_by_one)


def test_a_decoder_without_the_rows_is_a_bug():
    """Nothing is forgotten by guessing."""

    class RowlessDecoder(TalkDecoder):
        async def generate(self, request):
            async for answer in super().generate(request):
                if isinstance(answer, GenerationSteps):
                    yield GenerationSteps(answer.tokens, answer.end, answer.timings)
                else:
                    yield answer

    options = with_options(endpointing=None, history_selection=LAST_THREE)
    with pytest.raises(RuntimeError, match="sent 0 rows for 1 tokens"):
        run_session([seconds(20)], options, decoder=RowlessDecoder())  # type: ignore[arg-type]


def test_no_segment_waits_for_the_encoder_to_forget():
    """It forgets between two segments: the time would look like the policy's own work."""
    working: list[SegmentTimeline] = []
    working_at_reset: list[bool] = []

    class WorkObserver(SegmentObserver):
        def begin(self, timeline):
            working.append(timeline)

        def end(self, timeline, worked):
            del worked
            working.remove(timeline)

    class ForgettingEncoder(ScriptedEncoder):
        async def reset(self, utterance, start_sample):
            await super().reset(utterance, start_sample)
            working_at_reset.append(bool(working))

    run_session(
        [seconds(20)],
        with_options(endpointing=None, history_selection=LAST_THREE),
        ForgettingEncoder(),
        TalkDecoder(),  # type: ignore[arg-type]
        observer=WorkObserver(),
    )
    assert len(working_at_reset) > 1
    assert not any(working_at_reset)


@settings(max_examples=10, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 159_999), max_size=8),
    words=st.integers(1, 6),
    unit=st.sampled_from(get_args(CommitUnit)),
)
def test_the_text_does_not_depend_on_how_audio_is_cut(cuts, words, unit):
    """Forgetting is a function of the samples, too."""
    borders = sorted({0, 160_000, *cuts})
    pieces = [bytes(2 * (b - a)) for a, b in itertools.pairwise(borders)]
    changes = {"history_selection": words, "commit_unit": unit}
    whole, _ = run_talk(20, **changes)
    cut, _ = run_talk(20, messages=pieces, **changes)
    ends = [event.end_sample for event in whole if isinstance(event, SegmentWorked)]
    assert [event.end_sample for event in cut if isinstance(event, SegmentWorked)] == ends
    assert [(i.text, i.delay_samples, i.source_end_sample) for i in items_of(cut)] == [
        (i.text, i.delay_samples, i.source_end_sample) for i in items_of(whole)
    ]
