"""The loop: segments in order, utterances end to end, words once."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from earvoice.policies import FrameSchedule, HoldN, Offline, WaitK
from earvoice.policies.base import Decision, DecisionPolicy, Token
from earvoice.policy.backend import Encoded
from earvoice.policy.event import (
    SegmentWorked,
    SessionTotals,
    TailChanged,
    UtteranceEnded,
    WordsReleased,
)
from earvoice.policy.evidence import VoiceActivity
from earvoice.policy.stream_options import CommitUnit
from earvoice.runtime.errors import InternalError
from tests.fakes import RATE_HERTZ, STATE_SAMPLES, ScriptedDecoder, ScriptedEncoder, make_token
from tests.unit.policy.running import items_of, run_session, seconds, with_options


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]


def test_every_boundary_is_decided_and_the_rest_is_final():
    """2 s in 0.8 s segments: two full ones and a final one."""
    encoder = ScriptedEncoder()
    events = run_session([seconds(2.0)], encoder=encoder)
    ends = [event.end_sample for event in of_kind(events, SegmentWorked)]
    assert ends == [6400, 12_800, 16_000]
    assert [call[0] for call in encoder.calls] == ["encode", "encode", "finish"]


def test_words_come_while_audio_comes_and_all_at_the_end():
    """EDAtt releases what attends to old audio; the end releases the rest."""
    events = run_session([seconds(2.0)])
    items = items_of(events)
    assert [item.text for item in items] == [f"w{10 + n}" for n in range(7)]
    assert items[0].delay_samples == 6400
    assert items[-1].delay_samples == 16_000
    assert all(item.source_end_sample <= item.delay_samples for item in items)


@pytest.mark.parametrize(
    "decision",
    [Decision(99), Decision(-1), Decision(1.0), Decision(True), 1, None],
)
def test_a_policy_that_decides_nonsense_is_told(decision):
    """Whose fault it is, what was decided, and what may be."""
    decides = {"name": "careless", "decide": lambda *_: decision}
    policy = type("Careless", (DecisionPolicy,), decides)()
    with pytest.raises(
        InternalError, match=r"policy\.careless: decide returned .*; allowed: a Dec"
    ):
        run_session([seconds(2.0)], with_options(policy=policy))


def test_no_audio_gives_a_summary_and_nothing_else():
    """An empty stream is not an error."""
    assert run_session([]) == [SessionTotals()]


def test_one_sample_says_nothing():
    """Less than a state: a segment without a word, then the end."""
    events = run_session([bytes(2)])
    assert items_of(events) == []
    assert len(of_kind(events, SegmentWorked)) == 1


def test_silence_says_nothing_and_costs_no_decoding():
    """Without speech the decoder is never asked, and utterances end by themselves."""
    decoder = ScriptedDecoder()
    encoder = ScriptedEncoder(voice=lambda *_: VoiceActivity(False))
    events = run_session([seconds(60)], encoder=encoder, decoder=decoder)
    assert items_of(events) == []
    assert decoder.requests == []
    assert len(of_kind(events, UtteranceEnded)) > 5


def test_a_schedule_makes_nothing_up_after_a_silent_beginning():
    """The evidence guard holds wait-k back for 4 s; then it writes at its pace, not all at once."""
    encoder = ScriptedEncoder(voice=lambda start, end: VoiceActivity(end > 4 * RATE_HERTZ, end))
    options = with_options(policy=WaitK(k=3), endpointing=None)
    events = run_session([seconds(8)], options, encoder)
    released = [len(event.items) for event in of_kind(events, WordsReleased)]
    assert max(released[:-1]) <= 3


def test_a_pause_ends_the_utterance_and_everything_starts_anew():
    """The next utterance begins inside the pause, with an empty prefix and re-sent audio.

    It begins half a pause before the end of the segment that has shown the pause.
    """
    speech_end, decided_at = int(1.5 * RATE_HERTZ), int(2.4 * RATE_HERTZ)
    encoder = ScriptedEncoder(
        voice=lambda start, end: VoiceActivity(start < speech_end, min(end, speech_end))
    )
    decoder = ScriptedDecoder(source=lambda _: [make_token(1, "Yes.")])
    events = run_session([seconds(3.2)], encoder=encoder, decoder=decoder)
    first, second = of_kind(events, UtteranceEnded)
    assert (first.cause, first.end_sample) == ("pause", decided_at - 2400)
    assert (second.start_sample, second.cause) == (first.end_sample, "end_of_audio")
    assert ("finish", first.end_sample) in encoder.calls
    assert ("reset", 1, first.end_sample) in encoder.calls
    assert {item.utterance for item in items_of(events)} == {0}


def pausing_encoder(pause_start: int, pause_end: int) -> ScriptedEncoder:
    """Hears speech everywhere but in one pause."""

    def voice(start: int, end: int) -> VoiceActivity:
        if end <= pause_end:
            return VoiceActivity(True, min(end, pause_start))
        return VoiceActivity(True, end, [(pause_start, pause_end)] if start < pause_start else [])

    return ScriptedEncoder(voice=voice)


@pytest.mark.parametrize(
    ("segment_ms", "text", "causes"),
    [
        (800, "Yes.", ["pause", "end_of_audio"]),
        (800, "Ask not", ["end_of_audio"]),
        (1300, "Ask not", ["pause", "end_of_audio"]),
    ],
)
def test_a_pause_within_a_sentence_must_be_longer(segment_ms, text, causes):
    """After 1.31 s speech pauses: long enough after "Yes.", not after "Ask not".

    That nothing is written of what follows changes nothing. With the longer segments the last text
    known is that of 1.3 s, which does not say what the pause is in.
    """
    pause = int(1.31 * RATE_HERTZ), int(2.55 * RATE_HERTZ)

    def source(states: int) -> list[Token]:
        heard = states * STATE_SAMPLES
        written = "Ask" if heard < pause[0] else text if heard < 2 * RATE_HERTZ else ""
        return [Token(1, written.encode(), True, (), 0.0)]

    options = with_options(segment_ms=segment_ms)
    encoder, decoder = pausing_encoder(*pause), ScriptedDecoder(source=source)
    events = run_session([seconds(3.5)], options, encoder, decoder)
    assert [event.cause for event in of_kind(events, UtteranceEnded)] == causes


@pytest.mark.parametrize(
    ("mark", "causes"),
    [
        (".", ["pause", "end_of_audio"]),
        ('?"', ["pause", "end_of_audio"]),
        ("", ["end_of_audio"]),
        (":", ["end_of_audio"]),
        ('"', ["end_of_audio"]),
    ],
)
def test_captions_tell_by_their_own_text_what_a_pause_is_in(mark, causes):
    """As far as the policy has read it."""
    encoder = pausing_encoder(int(1.31 * RATE_HERTZ), int(2.55 * RATE_HERTZ))

    def word(number: int, states: int) -> list[Token]:
        row = [float(i == min(4 * number + 2, states - 1)) for i in range(states)]
        return [make_token(10 + number, f"w{number}{mark}", attention=row)]

    decoder = ScriptedDecoder(word=word)
    events = run_session([seconds(3.5)], encoder=encoder, decoder=decoder)
    assert [event.cause for event in of_kind(events, UtteranceEnded)] == causes


def test_a_closed_utterance_ends_at_the_next_pause():
    """Nothing more is written of it, so what follows must not belong to it."""
    policy = WaitK(k=3, end_while_reading="commit")
    decoder = ScriptedDecoder(word=lambda number, _: [make_token(10)] if not number else [])
    encoder = pausing_encoder(int(1.31 * RATE_HERTZ), int(2.4 * RATE_HERTZ))
    events = run_session([seconds(3.5)], with_options(policy=policy), encoder, decoder)
    assert [event.cause for event in of_kind(events, UtteranceEnded)] == ["pause", "end_of_audio"]


def test_long_speech_is_cut_before_20_s():
    """Without a pause no utterance grows past the limit, and no audio is skipped."""
    events = run_session([seconds(50)])
    ended = of_kind(events, UtteranceEnded)
    assert [event.cause for event in ended[:-1]] == ["forced"] * (len(ended) - 1)
    assert all(event.end_sample - event.start_sample <= 20 * RATE_HERTZ for event in ended)
    assert [event.start_sample for event in ended[1:]] == [e.end_sample for e in ended[:-1]]


def test_without_endpointing_there_is_one_utterance():
    """Pre-segmented audio is never cut."""
    events = run_session([seconds(50)], with_options(endpointing=None))
    assert len(of_kind(events, UtteranceEnded)) == 1


def test_merge_takes_the_newest_boundary():
    """All audio is there at once: one merged segment, then the rest."""
    events = run_session([seconds(4.1)], with_options(merges_segments=True))
    segments = of_kind(events, SegmentWorked)
    assert [(s.end_sample, s.merged_segments) for s in segments] == [(32_000, 4), (32_800, 0)]


def test_the_uncommitted_tail_becomes_the_draft():
    """Hold-2 keeps two tokens; the next generation gets them as its draft."""
    decoder = ScriptedDecoder()
    run_session([seconds(1.6)], with_options(policy=HoldN(n=2)), decoder=decoder)
    assert decoder.requests[0].draft == ()
    assert decoder.requests[1].prefix == (10,)
    assert decoder.requests[1].draft == (11, 12)


def test_what_was_on_its_way_at_the_halt_is_the_drafts_end():
    """It was computed already: the next generation only has to check it."""
    drafts = []
    for late_tokens in (0, 1):
        decoder = ScriptedDecoder(word=sure_of_the_first, late_tokens=late_tokens)
        run_session([seconds(1.7)], decoder=decoder)
        drafts.append(decoder.requests[1].draft)
    assert drafts == [(11,), (11, 12)]


def sure_of_the_first(number: int, states: int) -> list[Token]:
    """All words but the first attend to the newest sound, but for the last state."""
    place = states - 2 if number else 0
    row = tuple(float(i == place) for i in range(states))
    return [make_token(10 + number, attention=row)]


def test_the_decoder_is_halted_once_the_policy_has_decided():
    """EDAtt needs no more than the first token it refuses."""
    decoder = ScriptedDecoder()
    run_session([seconds(1.7)], decoder=decoder)
    assert decoder.halts == 1


def test_wait_k_reads_without_decoding():
    """Three words are not over; the decoder is not asked."""
    decoder = ScriptedDecoder()
    options = with_options(policy=WaitK(k=20))
    run_session([seconds(0.8)], options, decoder=decoder)
    assert len(decoder.requests) == 1


def test_token_unit_holds_a_half_word_back():
    """The first piece is committed in one segment and released with its word in a later one."""

    def halves(number: int, states: int):
        place = tuple(float(i == min(number * 4 + 2, states - 1)) for i in range(states))
        late = tuple(float(i == min(number * 4 + 6, states - 1)) for i in range(states))
        return [
            make_token(10 + 2 * number, "half", attention=place),
            make_token(11 + 2 * number, "word", starts=False, attention=late),
        ]

    for unit in get_args(CommitUnit):
        decoder = ScriptedDecoder(word=halves)
        events = run_session([seconds(2.4)], with_options(commit_unit=unit), decoder=decoder)
        assert {item.text for item in items_of(events)} == {"halfword"}
        held = any(item.stages.word_hold_ms > 0 for item in items_of(events))
        assert held == (unit == "token")


def test_a_held_word_is_told_by_the_clock_on_the_wall():
    """A burst of audio makes the stream older than was thought; nobody waited meanwhile."""
    options = with_options(merges_segments=True, commit_unit="token")
    items = items_of(run_session([seconds(2.0), seconds(15.0), seconds(0.5)], options))
    assert any(item.stages.word_hold_ms > 0 for item in items)
    assert all(item.stages.word_hold_ms < 1000 for item in items)


def test_interim_results_show_the_tail_when_it_changes():
    """The tail follows the committed text and disappears at the end."""
    events = run_session(
        [seconds(1.6)], with_options(sends_interim_results=True, policy=HoldN(n=2))
    )
    assert [event.text for event in of_kind(events, TailChanged)] == ["w11 w12", "w14 w15", ""]


def test_the_tail_has_the_whole_word_that_is_held_back():
    """Its beginning may be committed already, but the client has not been sent it."""

    def syllable(number: int, states: int) -> list[Token]:
        row = tuple(float(state == number) for state in range(states))
        return [make_token(10 + number, "abc"[number % 3], starts=number % 3 == 0, attention=row)]

    options = with_options(sends_interim_results=True, policy=HoldN(n=1), commit_unit="token")
    events = run_session([seconds(3.2)], options, decoder=ScriptedDecoder(word=syllable))
    shown = [event.text for event in of_kind(events, TailChanged)]
    assert len(shown) > 2
    assert all(text.startswith("a") for text in shown[:-1])


def test_no_tail_outlives_its_utterance():
    """What a guard cuts from the last commit will never come, so it is not shown either."""
    decoder = ScriptedDecoder(
        word=lambda number, states: [make_token(10, "so", attention=(1.0,) * states)]
    )
    options = with_options(sends_interim_results=True, policy=HoldN(n=2))
    events = run_session([seconds(4)], options, decoder=decoder)
    assert of_kind(events, SessionTotals)[0].guards_hit["loop"] > 0
    tails = [event.text for event in of_kind(events, TailChanged)]
    assert tails[-1] == ""
    assert len(tails) > 1


def test_a_tail_goes_when_the_end_brings_no_hypothesis():
    """At the end nothing is decoded without evidence; the tail of before must not stay."""
    rate = RATE_HERTZ
    encoder = ScriptedEncoder(voice=lambda start, end: VoiceActivity(end < 2 * rate, end))
    options = with_options(sends_interim_results=True, policy=HoldN(n=2))
    events = run_session([seconds(2)], options, encoder)
    assert [event.text for event in of_kind(events, TailChanged)][-1] == ""


class RestingEncoder(ScriptedEncoder):
    """Gives no states where nobody speaks, as where `skip_silence` is asked for."""

    def _encoded(self, end: int, transcript: str = "") -> Encoded:
        encoded = super()._encoded(end, transcript)
        if encoded.evidence.voice_activity.has_speech:
            return encoded
        nothing = replace(encoded.evidence, ctc_labels=[], span_end_samples=[], label_count=0)
        return replace(encoded, evidence=nothing)


@pytest.mark.parametrize("heard", [ScriptedEncoder, RestingEncoder])
def test_an_end_in_silence_is_counted(heard: type[ScriptedEncoder]):
    """Whether or not the encoder computed anything; without any sound there was nothing to hear."""
    for length_s, hits in ((1, 1), (0, 0)):
        encoder = heard(voice=lambda start, end: VoiceActivity(False, end))
        events = run_session([seconds(length_s)], with_options(), encoder)
        assert of_kind(events, SessionTotals)[0].guards_hit.get("evidence", 0) == hits


def test_the_transcript_comes_only_when_asked_for():
    """Text of the source is not sent around without need."""
    for wanted in (True, False):
        events = run_session([seconds(1)], with_options(sends_source_transcript=wanted))
        ended = of_kind(events, UtteranceEnded)[-1]
        assert ended.source_transcript == ("heard" if wanted else "")


def test_a_repeating_model_is_cut():
    """A loop is stopped by its guard and counted in the summary."""
    decoder = ScriptedDecoder(
        word=lambda number, states: [make_token(10, "so", attention=(1.0,) * states)]
    )
    options = with_options(policy=HoldN(n=0), endpointing=None)
    events = run_session([seconds(4)], options, decoder=decoder)
    assert len(items_of(events)) == 2
    assert of_kind(events, SessionTotals)[0].guards_hit["loop"] > 0


@pytest.mark.parametrize("length_s", [4, 3.5, 3.2])
def test_a_loop_that_does_not_end_is_left_behind(length_s: float):
    """Forced to go on from it the model would never say anything else, however long it hears."""

    def stuck_in_the_first_utterance(number: int, states: int) -> list[Token]:
        place = min(number * 4 + 2, states - 1)
        row = tuple(float(state == place) for state in range(states))
        is_first = encoder.start_sample == 0
        return [make_token(10 if is_first else 20 + number, attention=row)]

    encoder = ScriptedEncoder()
    decoder = ScriptedDecoder(word=stuck_in_the_first_utterance)
    options = with_options(policy=HoldN(n=0))
    events = run_session([seconds(length_s)], options, encoder, decoder)
    first, second = of_kind(events, UtteranceEnded)
    assert first.cause == "forced"
    assert (second.start_sample, second.cause) == (first.end_sample, "end_of_audio")
    assert first.end_sample == int(length_s * RATE_HERTZ) // 2
    texts = [item.text for item in items_of(events)]
    assert texts[:2] == ["w10"] * 2
    assert texts[2:] == [f"w{20 + number}" for number in range(int(length_s / 2 / 0.32) + 1)]


def test_a_loop_inside_a_word_is_left_behind():
    """The guard lets its first pieces through, but the word never ends: nothing is released."""

    def endless_word_in_the_first_utterance(number: int, states: int) -> list[Token]:
        row = tuple(float(state == min(number * 4 + 2, states - 1)) for state in range(states))
        if encoder.start_sample == 0:
            return [make_token(10 if number == 0 else 11, starts=number == 0, attention=row)]
        return [make_token(20 + number, attention=row)]

    encoder = ScriptedEncoder()
    decoder = ScriptedDecoder(word=endless_word_in_the_first_utterance)
    options = with_options(policy=HoldN(n=0))
    events = run_session([seconds(6)], options, encoder, decoder)
    first, _ = of_kind(events, UtteranceEnded)
    assert first.cause == "forced"
    assert {item.text for item in items_of(events)} >= {"w20", "w21"}


def test_a_word_s_delay_never_goes_back_after_a_cut():
    """A cut lies in the past: audio behind it has been received although it is heard again."""
    pause = (11 * RATE_HERTZ, 11 * RATE_HERTZ + 1600)
    encoder = ScriptedEncoder(voice=lambda start, end: VoiceActivity(True, end, [pause]))
    decoder = ScriptedDecoder()
    events = run_session([seconds(21)], with_options(policy=Offline()), encoder, decoder)
    assert of_kind(events, UtteranceEnded)[0].end_sample == 11 * RATE_HERTZ + 800
    delays = [item.delay_samples for item in items_of(events)]
    assert delays == sorted(delays)
    assert delays[0] == 20 * RATE_HERTZ


@pytest.mark.parametrize("merge", [True, False])
def test_positions_and_clocks_never_go_back(merge: bool):
    """Delays and elapsed times of released items are monotone."""
    items = items_of(run_session([seconds(30)], with_options(merges_segments=merge)))
    assert items
    for name in ("delay_samples", "elapsed_ms", "utterance"):
        values = [getattr(item, name) for item in items]
        assert values == sorted(values)


def test_a_beam_comes_whole():
    """There is nothing to halt, nothing to verify, and attention is read from the best."""
    decoder = ScriptedDecoder()
    greedy = items_of(run_session([seconds(3.0)]))
    items = items_of(run_session([seconds(3.0)], with_options(beam_size=5), decoder=decoder))
    assert [(i.text, i.delay_samples) for i in items] == [(i.text, i.delay_samples) for i in greedy]
    assert decoder.halts == 0
    assert all(request.draft == () and request.beam_size == 5 for request in decoder.requests)


def test_hypotheses_are_told_whole_and_only_when_asked_for():
    """Forced prefix, new tokens, and how many of these were committed; no halting cuts them."""
    decoder = ScriptedDecoder()
    run_session([seconds(1.7)], with_options(sends_hypotheses=True), decoder=decoder)
    assert decoder.halts == 0
    options = with_options(sends_hypotheses=True, policy=HoldN(1))
    told = of_kind(run_session([seconds(1.6)], options), SegmentWorked)
    assert [(s.hypothesis_tokens, s.prefix_token_count, s.committed_token_count) for s in told] == [
        ((10, 11, 12), 0, 2),
        ((10, 11, 12, 13, 14, 15), 2, 3),
        ((10, 11, 12, 13, 14, 15), 5, 1),
    ]
    for segment in of_kind(run_session([seconds(1.6)]), SegmentWorked):
        assert not segment.hypothesis_tokens
        assert segment.prefix_token_count == segment.committed_token_count == 0


def test_offline_decodes_nothing_before_the_end():
    """One generation, with the whole utterance, releases everything."""
    decoder = ScriptedDecoder()
    items = items_of(run_session([seconds(3.0)], with_options(policy=Offline()), decoder=decoder))
    assert len(decoder.requests) == 1
    assert {item.delay_samples for item in items} == {24_000}


def test_a_schedule_writes_on_its_own_grid():
    """With k = 100 and s = 10 frames: after 1 s, then each 100 ms, a token at most."""
    schedule = FrameSchedule(wait_frames=100, stride_frames=10, tokens=1)
    segment_ms, initial_wait_ms = schedule.required_segment_ms
    options = with_options(policy=schedule, segment_ms=segment_ms, initial_wait_ms=initial_wait_ms)
    items = items_of(run_session([seconds(1.55)], options))
    assert [item.delay_samples for item in items] == [8000 + 800 * n for n in range(5)]
