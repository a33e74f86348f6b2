from __future__ import annotations

import asyncio
import logging

import grpc
import numpy as np
import pytest

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.runtime.engine import EngineThread
from tests.integration.encoder.running_encoder import SESSION_LIMIT, start_encoder
from tests.requests import audio, finish, open_session, reset
from tests.tiny_model import WIDTH

pytestmark = pytest.mark.torch

SEGMENT_SAMPLES = 12_800


def states_of(answer) -> np.ndarray:
    states = answer.encoded.states
    assert states.element_type == types_pb2.ELEMENT_TYPE_FLOAT32
    return np.frombuffer(states.data, "<f4").reshape(states.state_count, states.dimension)


async def test_revisions_replace_each_other(encoder, speech):
    """Every request gets one answer in order; states, labels and spans go together and grow."""
    data = speech.tobytes()
    size = 2 * SEGMENT_SAMPLES
    opened, *revisions, final = await encoder.ask(
        open_session(enable_source_transcript=True),
        *(audio(k + 1, data[k * size : (k + 1) * size]) for k in range(4)),
        finish(5, len(speech), data[4 * size :]),
    )
    assert opened.opened.model.name == "tiny"
    assert [a.encoded.states.states_id.revision for a in revisions] == [1, 2, 3, 4]
    for count, answer in enumerate(revisions, start=1):
        encoded = answer.encoded
        spans = list(encoded.states.span_end_samples)
        assert states_of(answer).shape == (len(spans), WIDTH)
        assert len(encoded.evidence.ctc_labels) == len(spans)
        assert spans == sorted(spans)
        assert count * SEGMENT_SAMPLES - 640 <= spans[-1] <= count * SEGMENT_SAMPLES
        assert encoded.evidence.frame_count == (count * SEGMENT_SAMPLES - 240) // 160
        assert not encoded.states.final
        assert encoded.evidence.source_transcript == ""
    assert final.encoded.states.final
    assert final.encoded.states.span_end_samples[-1] == len(speech)
    assert not final.encoded.evidence.has_partial_word
    assert np.isfinite(states_of(final)).all()


async def test_timings_add_up(encoder, speech):
    """Waiting and computing are parts of what elapsed, and one session shares with nobody."""
    answers = await encoder.ask(open_session(), audio(1, speech.tobytes()))
    for answer in answers:
        timings = answer.timings
        assert timings.elapsed_ms >= timings.queue_ms + timings.compute_ms > 0
        assert timings.batch_size == 1
    assert answers[1].timings.compute_ms > 0


async def test_reset_begins_anew(encoder, speech):
    """After a reset the same audio gives the same states, at positions from the new start."""
    data = speech.tobytes()[: 4 * SEGMENT_SAMPLES]
    _, first, _, done, second = await encoder.ask(
        open_session(),
        audio(1, data),
        finish(2, 2 * SEGMENT_SAMPLES),
        reset(1, 7_000),
        audio(1, data),
    )
    assert done.reset_done.utterance == 1
    assert second.encoded.states.states_id == types_pb2.StatesId(utterance=1, revision=1)
    assert second.encoded.states.data == first.encoded.states.data
    shifted = [end + 7_000 for end in first.encoded.states.span_end_samples]
    assert list(second.encoded.states.span_end_samples) == shifted


@pytest.mark.parametrize("rate_hz", [8000, 16000, 44100])
async def test_finish_in_the_past(encoder, speech, rate_hz):
    """An end before audio already sent answers as if that audio had never come."""
    data, end = speech.tobytes(), 3 * SEGMENT_SAMPLES // 2 + 77
    opening = open_session(rate_hz=rate_hz)
    *_, past = await encoder.ask(opening, audio(1, data), finish(2, end))
    *_, alone = await encoder.ask(opening, finish(1, end, data[: 2 * end]))
    past.encoded.states.states_id.revision = 1
    np.testing.assert_allclose(states_of(past), states_of(alone), atol=1e-4)
    past.encoded.states.data = alone.encoded.states.data
    assert past.encoded == alone.encoded


@pytest.mark.parametrize(
    ("encoding", "channels", "convert"),
    [
        (types_pb2.AUDIO_ENCODING_FLOAT32, 1, lambda x: (x / 32768).astype("<f4")),
        (types_pb2.AUDIO_ENCODING_FLOAT32, 2, lambda x: (x / 32768).astype("<f4").repeat(2)),
        (types_pb2.AUDIO_ENCODING_LINEAR16, 2, lambda x: x.repeat(2)),
    ],
)
async def test_equal_audio_in_other_formats_is_equal(encoder, speech, encoding, channels, convert):
    """The same samples as floats or on two channels give the same bytes of states."""
    _, reference = await encoder.ask(open_session(), audio(1, speech.tobytes()))
    opening = open_session(encoding=encoding, channels=channels)
    _, other = await encoder.ask(opening, audio(1, convert(speech).tobytes()))
    assert other.encoded == reference.encoded


async def test_describe_model(encoder, model):
    """The unary call says what open says."""
    described = await encoder.stub.DescribeModel(pb.EncoderServiceDescribeModelRequest())
    (opened,) = await encoder.ask(open_session(model_hash=model.description.hash))
    assert described.model == opened.opened.model
    assert described.model.hash == model.description.hash
    assert described.model.version == "7"
    assert list(described.model.target_language_codes) == ["de"]
    assert described.model.decoder_layer_count == 2
    assert described.model.default_attention_layer == 2
    assert described.model.parameter_count > 1000


async def test_sessions_do_not_mix(encoder, speech):
    """Streams that run at once answer bitwise as each does alone."""
    pieces = [speech.tobytes()[k * 20_000 : k * 20_000 + 30_000] for k in range(SESSION_LIMIT)]
    scripts = [(open_session(), audio(1, p[:16_000]), audio(2, p[16_000:])) for p in pieces]
    together = await asyncio.gather(*(encoder.ask(*script) for script in scripts))
    for script, answers in zip(scripts, together, strict=True):
        alone = await encoder.ask(*script)
        assert [a.encoded for a in answers] == [a.encoded for a in alone]


class NotedEngine(EngineThread):
    """Notes for each computation how many of other sessions came between question and turn."""

    def __init__(self) -> None:
        super().__init__("noted-encoder")
        self.overtaken: list[int] = []
        self._waiting: dict[object, int] = {}

    async def run(self, compute):
        session = compute.func.__self__
        self._waiting[session] = 0

        def noted():
            self.overtaken.append(self._waiting.pop(session))
            for other in list(self._waiting):
                self._waiting[other] += 1
            return compute()

        return await super().run(noted)


async def test_a_session_that_floods_gets_every_other_turn(settings, model, speech):
    """One that asks for all at once does not keep one that asks now and then waiting."""
    engine = NotedEngine()
    encoder, stop = await start_encoder(settings, model, engine)
    flood = encoder.stub.Encode()
    await flood.write(open_session())
    await flood.read()
    count = 80
    for index in range(count):
        await flood.write(audio(index + 1, speech.tobytes()[:640]))
    answered: list[str] = []

    async def read_flood() -> None:
        for _ in range(count):
            await flood.read()
            answered.append("flood")

    reading = asyncio.create_task(read_flood())
    other = encoder.stub.Encode()
    await other.write(open_session())
    await other.read()
    for index in range(5):
        await other.write(audio(index + 1, speech.tobytes()[:640]))
        await other.read()
    assert len(answered) < count, "the flood was over too early to show anything"
    await reading
    for call in (flood, other):
        call.cancel()
    await stop()
    # The flood's one turn may wait before the other's; the rest come behind it.
    assert len(engine.overtaken) == count + 1 + 5 + 1
    assert max(engine.overtaken) <= 1


async def test_one_session_too_many_is_refused(encoder):
    """The limit is answered at once with RESOURCE_EXHAUSTED, and a freed place is given again."""
    calls = [encoder.stub.Encode() for _ in range(SESSION_LIMIT)]
    for call in calls:
        await call.write(open_session())
        await call.read()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await encoder.ask(open_session())
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await calls[0].done_writing()
    assert await calls[0].read() is grpc.aio.EOF
    await encoder.ask(open_session())
    for call in calls:
        call.cancel()


async def test_a_vanished_client_frees_its_place(encoder, speech):
    """A cancelled stream ends its session once its computation has ended."""
    call = encoder.stub.Encode()
    await call.write(open_session())
    await call.read()
    await call.write(audio(1, speech.tobytes()))
    call.cancel()
    await encoder.limit.drain()
    assert encoder.limit.active == 0


async def test_draining_lets_sessions_end(encoder, speech):
    """While draining a running session goes on and a new one is refused as UNAVAILABLE."""
    call = encoder.stub.Encode()
    await call.write(open_session())
    await call.read()
    draining = asyncio.create_task(encoder.limit.drain())
    await asyncio.sleep(0)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await encoder.ask(open_session())
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    await call.write(audio(1, speech.tobytes()))
    assert (await call.read()).encoded.states.state_count > 0
    assert not draining.done()
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    await draining


async def test_before_the_model_is_loaded_calls_are_refused(settings):
    """A server that is still loading answers UNAVAILABLE, streams and unary calls alike."""
    running, stop = await start_encoder(settings, None)
    for attempt in (
        running.ask(open_session()),
        running.stub.DescribeModel(pb.EncoderServiceDescribeModelRequest()),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await attempt
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    await stop()


async def test_a_silent_client_is_ended(settings, model):
    """A stream without requests for the idle time ends with DEADLINE_EXCEEDED."""
    running, stop = await start_encoder(
        settings.model_copy(update={"idle_timeout_ms": 1000}), model
    )
    call = running.stub.Encode()
    await call.write(open_session())
    await call.read()
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await call.read()
    assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await stop()


async def test_streams_that_send_nothing_hold_no_place(encoder):
    """A session is counted when its first message has come; as many as may run wait in silence."""
    silent = [encoder.stub.Encode() for _ in range(SESSION_LIMIT)]
    (opened,) = await encoder.ask(open_session())
    assert opened.HasField("opened")
    for call in silent:
        call.cancel()


async def test_the_first_message_is_not_waited_for_as_long_as_the_next(encoder, monkeypatch):
    """A stream that does not say what it wants is ended, however long a session may be idle."""
    monkeypatch.setattr("earvoice.runtime.interceptor.FIRST_MESSAGE_TIMEOUT_S", 0.1)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await encoder.stub.Encode().read()
    assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_one_log_line_a_session(encoder, speech, caplog):
    """The end of a session is logged once, with its numbers and without a word of its text."""
    request = open_session(session_id="s-1", enable_source_transcript=True)
    request.trace_context.traceparent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    with caplog.at_level(logging.INFO, "earvoice.encoder"):
        *_, answer = await encoder.ask(request, finish(1, len(speech), speech.tobytes()))
    (record,) = [r for r in caplog.records if r.message == "session ended"]
    assert (record.session_id, record.trace_id) == ("s-1", "ab" * 16)
    assert (record.status, record.audio_s, record.revisions) == ("OK", 4.0, 1)
    assert record.compute_ms > 0
    transcript = answer.encoded.evidence.source_transcript
    assert not any(value == transcript for value in vars(record).values() if value)
