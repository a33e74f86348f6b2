"""Responses as events."""

import pytest

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.client.errors import ProtocolError
from earvoice.client.event import (
    Committed,
    EndOfUtterance,
    EventReader,
    GoAway,
    SegmentDone,
    Started,
    Summary,
    Tentative,
)
from earvoice.policies.registry import NamedPolicy
from earvoice.runtime.audio_format import AudioFormat

Response = api.StreamingTranslateResponse
AUDIO = {"audio_encoding": "AUDIO_ENCODING_MULAW", "sample_rate_hertz": 8_000}
STARTED = Response(seq=1, session_started={"elapsed_clock": 1, "config": AUDIO})


@pytest.fixture
def reader():
    """Return a reader of an 8 kHz session whose clock stands at 1234 ms."""
    return EventReader(AudioFormat("mulaw", 8_000), lambda: 1234.0)


def test_the_start_is_read(reader):
    """The effective config, the model and the clock reach the caller."""
    config = api.StreamingConfig(target_language_codes=["de"], **AUDIO)
    config.policy.edatt.alpha = 0.25
    event = reader.read(
        Response(
            seq=1,
            session_started=api.SessionStarted(
                session_id="s",
                config=config,
                server_version="0.1",
                elapsed_clock=api.ELAPSED_CLOCK_TRUE,
                model={"name": "m", "target_language_codes": ["de"], "precision": 1},
            ),
        )
    )
    assert isinstance(event, Started)
    assert (event.session_id, event.policy_name, event.elapsed_clock) == ("s", "edatt", "true")
    assert event.options.policy.alpha == 0.25
    assert (event.model.name, event.model.precision) == ("m", "float32")


def test_a_newer_servers_policy_ends_no_session(reader):
    """A value that this client would refuse is told as it came."""
    config = api.StreamingConfig(target_language_codes=["de"], **AUDIO)
    config.policy.edatt.alpha = 7
    event = reader.read(Response(seq=1, session_started={"elapsed_clock": 1, "config": config}))
    assert event.options.policy == NamedPolicy("edatt", {"alpha": 7})


def test_a_newer_servers_messages_end_no_session(reader):
    """One of a kind not known here is counted and left out; a cause not known here is another."""
    reader.read(STARTED)
    unknown = b"\x08\x02\xa2\x06\x00"  # seq 2, and field 100, empty
    assert reader.read(Response.FromString(unknown)) is None
    assert reader.read(Response(seq=3, end_of_utterance={"cause": 9})).cause == "other"
    reader.read(Response(seq=4, summary={}))
    reader.check_end()


def test_a_committed_word_has_milliseconds(reader):
    """Positions are counted at the session's own rate."""
    reader.read(STARTED)
    item = api.CommittedItem(
        text="Haus",
        starts_word=True,
        target_language_code="de",
        source_start_sample=800,
        source_end_sample=1600,
        delay_samples=4000,
        elapsed_ms=700.5,
        stage_timings={"total_ms": 9, "decision_ms": 1},
    )
    committed = {"items": [item], "acknowledged_samples": 80, "resume_token": b"t"}
    event = reader.read(Response(seq=2, committed=committed))
    assert isinstance(event, Committed)
    assert (event.acknowledged_samples, event.resume_token) == (80, b"t")
    (word,) = event.words
    assert (word.source_start_ms, word.source_end_ms, word.delay_ms) == (100.0, 200.0, 500.0)
    assert (word.elapsed_ms, word.received_ms) == (700.5, 1234.0)
    assert (word.live_lag_ms, word.client_network_ms) == (1034.0, 533.5)
    assert (word.stage_timings.total_ms, word.stage_timings.decision_ms) == (9, 1)


def test_stage_timings_are_none_when_not_sent(reader):
    """Nothing is invented."""
    reader.read(STARTED)
    event = reader.read(Response(seq=2, committed={"items": [{"text": "x"}]}))
    assert event.words[0].stage_timings is None


def test_the_other_events_are_read(reader):
    """Each response becomes the event of its kind."""
    reader.read(STARTED)
    responses = [
        Response(tentative={"text": "viel", "target_language_code": "de", "utterance": 1}),
        Response(segment_done={"segment": 1, "end_sample": 6400, "computation_ms": 2.5}),
        Response(end_of_utterance={"end_sample": 8000, "cause": "UTTERANCE_END_CAUSE_PAUSE"}),
        Response(go_away={"grace": {"seconds": 3}}),
        Response(summary={"audio_samples": 8000, "word_count": 2, "guards_hit": {"loop": 1}}),
    ]
    for seq, response in enumerate(responses, start=2):
        response.seq = seq
    tail, segment, end, away, summary = map(reader.read, responses)
    assert tail == Tentative("viel", "de", 1)
    assert isinstance(segment, SegmentDone)
    assert (segment.end_ms, segment.computation_ms) == (800.0, 2.5)
    assert segment.hypothesis_tokens == ()
    assert isinstance(end, EndOfUtterance)
    assert (end.end_ms, end.cause) == (1000.0, "pause")
    assert away == GoAway(b"", 3000)
    assert isinstance(summary, Summary)
    assert (summary.audio_ms, summary.word_count, summary.guards_hit) == (1000.0, 2, {"loop": 1})
    reader.check_end()


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        ([Response(seq=1)], "session_started comes first"),
        ([Response(seq=1, committed={})], "session_started comes first"),
        ([STARTED, Response(seq=2, session_started={})], "and once"),
        ([STARTED, Response(seq=3, committed={})], "response 2 expected, but 3 came"),
        ([Response(seq=1, session_started={})], "elapsed_clock = 0"),
        ([Response(seq=1, session_started={"elapsed_clock": 1})], "encoding = None"),
        ([STARTED, Response(seq=2, end_of_utterance={})], "no cause"),
        (
            [STARTED, Response(seq=2, summary={}), Response(seq=3, committed={})],
            "after the summary",
        ),
    ],
)
def test_a_broken_order_is_told(reader, responses, message):
    """A server that breaks the protocol is not believed."""
    *good, bad = responses
    for response in good:
        reader.read(response)
    with pytest.raises(ProtocolError, match=message):
        reader.read(bad)


def test_an_end_without_summary_is_told(reader):
    """Status OK alone does not say that everything came."""
    reader.read(STARTED)
    with pytest.raises(ProtocolError, match="without a summary"):
        reader.check_end()


def test_a_hypothesis_comes_with_its_segment(reader):
    """Its tokens, how many were forced, and how many were committed."""
    reader.read(STARTED)
    told = {"hypothesis_tokens": [5, 6, 7], "prefix_token_count": 1, "committed_token_count": 2}
    segment = reader.read(Response(seq=2, segment_done=told))
    assert segment.hypothesis_tokens == (5, 6, 7)
    assert (segment.prefix_token_count, segment.committed_token_count) == (1, 2)
