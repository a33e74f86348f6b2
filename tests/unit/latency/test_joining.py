"""Spans become segments, words and sessions."""

import random

import pytest

from earvoice.latency.span import TraceStore, spans_of_line
from earvoice.latency.stage import SEGMENT_STAGES, WORD_STAGES
from earvoice.latency.traced_session import join_traces
from earvoice.telemetry import schema
from tests.unit.latency.traced import attribute, item, line, segment_spans, session_span, span

STAGES = {"previous_segment_wait": 30, "encoder_compute": 40, "decoder_compute": 25, "decision": 5}


def store_of(spans, most_traces=None):
    store = TraceStore(most_traces)
    store.take(spans_of_line(line(spans)))
    return store


def joined(spans):
    """The only session of some spans; nothing was left out."""
    (session,), problems = join_traces(store_of(spans))
    assert problems == []
    return session


def two_segments(**session):
    return [
        *segment_spans(1, STAGES, [item(500, 600, 300)]),
        *segment_spans(2, STAGES, [item(1000, 1100, 700, commit_segment=2)], utterance_end_ms=1000),
        session_span(**session),
    ]


def test_the_stages_are_those_of_the_schema():
    """None is forgotten, none invented, and their order is the same."""
    assert tuple(stage.name for stage in SEGMENT_STAGES) == schema.STAGES


def test_the_order_of_spans_does_not_matter():
    """Three services write when they like."""
    spans = two_segments()
    mixed = random.Random(1).sample(spans, len(spans))
    assert joined(mixed).words == joined(spans).words
    assert [segment.place for segment in joined(mixed).segments] == [(0, 1), (0, 2)]


def test_hosts_clocks_do_not_matter():
    """Every service shifted by years of its own: no number moves."""
    spans = two_segments()
    before = joined(spans)
    for one in spans:
        years = {"e": 5, "d": 11}.get(one["name"][0], 2) if "." in one["name"] else 2
        for name in ("startTimeUnixNano", "endTimeUnixNano"):
            one[name] = str(int(one[name]) + years * 31_536_000 * 10**9)
    assert joined(spans) == before


def test_the_stages_of_a_word_add_up_to_its_lag():
    """What the system did not take, the policy chose to wait."""
    for word in joined(two_segments()).words:
        assert sum(word.stages.values()) == pytest.approx(word.lag_ms)
        assert set(word.stages) == {stage.name for stage in WORD_STAGES}
        assert word.stages["audio_wait"] == pytest.approx(word.lag_ms - 100)


def test_a_held_word_has_the_stages_of_the_segment_that_committed_it():
    """It was released a segment later; only its hold came on top."""
    slow = {**STAGES, "encoder_compute": 240}
    session = joined(
        [
            *segment_spans(1, slow),
            *segment_spans(2, STAGES, [item(1000, 1100, 300, hold_ms=300, commit_segment=1)]),
            session_span(),
        ]
    )
    (word,) = session.words
    assert word.stages["encoder_compute"] == 240
    assert word.stages["word_hold"] == 300
    assert word.stages["audio_wait"] == pytest.approx(800 - 300 - 300)


def test_a_word_in_pieces_is_released_with_its_last():
    """As logs count it: one unit, the last piece's times, the audio of both."""
    pieces = [
        item(500, 600, 450),
        item(1000, 1100, 400, starts_word=False, commit_segment=2),
        item(1000, 1100, 900, commit_segment=2),
    ]
    spans = [
        *segment_spans(1, STAGES, pieces[:1]),
        *segment_spans(2, STAGES, pieces[1:]),
        session_span(),
    ]
    words = joined(spans).words
    assert [(word.delay_ms, word.source_end_ms) for word in words] == [(1000, 450), (1000, 900)]


def test_without_blanks_every_item_counts():
    """Chinese has no words that begin with a blank."""
    items = [item(500, 600, 300, starts_word=False) for _ in range(3)]
    spans = [*segment_spans(1, STAGES, items), session_span(target="zh-Hans")]
    assert len(joined(spans).words) == 3


def test_a_segment_that_committed_nothing_is_read_from_durations():
    """Waiting, queues and the network come out as they went in."""
    stages = {name: 10.0 + place for place, name in enumerate(schema.STAGES[1:])}
    session = joined([*segment_spans(1, stages, commits=False), session_span()])
    assert session.segments[0].stages == pytest.approx({"merge_wait": 0.0, **stages})


def test_on_the_true_clock_only_computation_takes_time():
    """Its sessions are not paced: what they waited means nothing."""
    stages = dict.fromkeys(schema.STAGES, 10.0)
    session = joined([*segment_spans(1, stages, commits=False), session_span(clock="true")])
    taken = {name for name, ms in session.segments[0].stages.items() if ms}
    assert taken == {"encoder_compute", "decoder_compute"}


def test_the_engines_own_numbers_count():
    """Between steps a generation waits for its turn: that is queueing."""
    spans = segment_spans(1, {"decoder_compute": 40.0}, commits=False)
    steps = next(one for one in spans if one["name"] == "decoder.steps")
    steps["attributes"] = [attribute("earvoice.engine.compute_ms", 15.0)]
    (segment,) = joined([*spans, session_span()]).segments
    assert segment.stages["decoder_compute"] == 15.0
    assert segment.stages["decoder_queue"] == pytest.approx(25.0)


def test_sessions_are_kept_apart():
    """And one whose own span has not come yet is running."""
    spans = [
        *segment_spans(1, STAGES, [item(500, 600, 300)], session="a"),
        *segment_spans(1, STAGES, [item(500, 600, 300)], session="b"),
        session_span("b"),
    ]
    found = {session.id: session for session in join_traces(store_of(spans))[0]}
    assert {name: session.status for name, session in found.items()} == {
        "a": "running",
        "b": "OK",
    }
    assert [len(session.words) for session in found.values()] == [1, 1]


def test_unfinished_segments_are_no_segments():
    """Its own span comes last; until then nothing is said of it."""
    spans = segment_spans(1, STAGES, [item(500, 600, 300)])[:-1]
    assert join_traces(store_of(spans)) == ([], [])


def test_a_segment_in_which_its_session_ended_is_left_out():
    """It was not finished; that is no fault of its trace."""
    first, last = (segment_spans(index, STAGES, commits=False) for index in (1, 2))
    last[-1]["attributes"] = [
        one for one in last[-1]["attributes"] if one["key"] != "earvoice.segment.computation_ms"
    ]
    assert [segment.segment for segment in joined([*first, *last, session_span()]).segments] == [1]


def test_what_cannot_be_joined_is_told():
    """Not passed over in silence, and the rest is reported."""
    broken = segment_spans(2, STAGES, [item(1000, 1100, 700)])
    broken[-1]["attributes"] = [
        one for one in broken[-1]["attributes"] if one["key"] != "earvoice.segment.end_ms"
    ]
    (session,), (problem,) = join_traces(
        store_of([*segment_spans(1, STAGES, [item(500, 600, 300)]), *broken, session_span()])
    )
    assert len(session.segments) == 1
    assert "earvoice.segment.end_ms = None, must be a number" in problem


def test_an_error_span_marks_its_segment():
    """Also one of another service."""
    spans = segment_spans(1, STAGES, commits=False, trace="f" * 32)
    spans.append(span("decode", "f" * 32, 1.0, failed=True))
    assert joined([*spans, session_span()]).segments[0].failed


def test_a_full_store_drops_the_oldest():
    """A live table runs for days."""
    store = TraceStore(most_traces=2)
    for index in range(1, 6):
        store.take(spans_of_line(line(segment_spans(index, STAGES))))
    (session,) = join_traces(store)[0]
    assert [segment.segment for segment in session.segments] == [4, 5]
    assert store.dropped_traces == 3


def test_a_resumed_session_does_not_hide_the_one_before():
    """Both belong to their caller's trace."""
    before, after = session_span(audio_ms=1000.0), session_span("5e55-11n", audio_ms=2000.0)
    after["traceId"] = before["traceId"]
    sessions, problems = join_traces(store_of([before, after]))
    assert [session.audio_ms for session in sessions] == [1000.0, 2000.0]
    assert problems == []


def test_spans_of_others_are_left_out():
    """A collector hands on everything."""
    store = store_of([span("GET /", "a" * 32, 1.0)])
    assert (store.span_count, join_traces(store)) == (0, ([], []))
