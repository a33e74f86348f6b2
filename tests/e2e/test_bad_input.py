"""Bad input gets its status and says what is allowed; the server goes on."""

from __future__ import annotations

import asyncio

import grpc
import numpy as np
import pytest
from google.protobuf import duration_pb2

from earvoice.api.v1 import decision_policy_pb2 as policy_pb
from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import speech_translation_service_pb2_grpc as pb_grpc
from earvoice.api.v1 import types_pb2
from tests.e2e.calling import (
    RATE_HERTZ,
    Outcome,
    Request,
    assert_well_formed,
    call,
    config,
    noise,
    note_error,
    requests,
    speech,
)

METHOD = "/earvoice.api.v1.SpeechTranslationService/StreamingTranslate"
SECOND = bytes(2 * RATE_HERTZ)
FLOAT32 = types_pb2.AUDIO_ENCODING_FLOAT32


def with_config(**changes) -> list[Request]:
    return requests(SECOND, size=len(SECOND), **changes)


def edatt(**fields) -> policy_pb.DecisionPolicy:
    return policy_pb.DecisionPolicy(edatt=policy_pb.EdattPolicy(**fields))


ORDER = ("FAILED_PRECONDITION", "OUT_OF_ORDER")
FIELD = ("INVALID_ARGUMENT", "INVALID_FIELD")
AUDIO = ("INVALID_ARGUMENT", "INVALID_AUDIO")
LANGUAGE = ("INVALID_ARGUMENT", "LANGUAGE_NOT_SUPPORTED")
BAD = {
    "no config": ([Request(audio=SECOND)], ORDER, "config"),
    "nothing at all": ([], ORDER, "config"),
    "empty message": ([Request()], ORDER, "config"),
    "two configs": ([Request(config=config()), Request(config=config())], ORDER, "audio"),
    "empty message after config": ([Request(config=config()), Request()], FIELD, "audio"),
    "update": ([Request(config=config()), Request(update=pb.StreamingUpdate())], FIELD, "update"),
    "unknown target": (with_config(target_language_codes=["tlh"]), LANGUAGE, "allowed: de"),
    "unknown source": (with_config(source_language_code="tlh"), LANGUAGE, "allowed: en"),
    "two targets": (
        with_config(target_language_codes=["de", "es"]),
        ("UNIMPLEMENTED", "NOT_IMPLEMENTED"),
        "target_language_codes",
    ),
    "unknown model": (with_config(model="nope"), ("NOT_FOUND", "MODEL_NOT_FOUND"), "allowed"),
    "no encoding": (with_config(audio_encoding=0), FIELD, "audio_encoding"),
    "0 Hz": (with_config(sample_rate_hertz=0), FIELD, "8000 to 48000"),
    "three channels": (with_config(audio_channel_count=3), FIELD, "1 to 2"),
    "alpha of 2": (with_config(policy=edatt(alpha=2.0)), FIELD, "policy.edatt.alpha"),
    "attention head 99": (
        with_config(policy=edatt(attention_heads=[99])),
        FIELD,
        "attention_heads",
    ),
    "segments of 1 ms": (
        with_config(segment_duration=duration_pb2.Duration(nanos=1_000_000)),
        FIELD,
        "segment_duration",
    ),
    "beam": (with_config(beam_size=17), FIELD, "1 to 16"),
    "resume": (
        with_config(resume_token=b"x"),
        ("FAILED_PRECONDITION", "INVALID_RESUME_TOKEN"),
        "resume_token",
    ),
    "target lag": (
        with_config(target_lag=duration_pb2.Duration(nanos=1_000_000)),
        FIELD,
        "500 ms to 20000 ms",
    ),
    "broken frames": (requests(bytes(3)), AUDIO, "2 bytes"),
    "more than 1 MiB": (requests(bytes(2**20 + 2), size=2**20 + 2), AUDIO, "1048576"),
    "not a number": (
        requests(np.full(RATE_HERTZ, np.nan, "<f4").tobytes(), audio_encoding=FLOAT32),
        AUDIO,
        "",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_input_gets_its_status(services, name: str):
    """Field, value and what is allowed; the next stream is served."""
    messages, status, says = BAD[name]
    outcome = await call(services.address, messages)
    assert (outcome.code.name, outcome.reason) == status
    assert says in outcome.details


async def test_random_bytes_instead_of_a_message(services):
    """INVALID_ARGUMENT, not UNKNOWN."""
    outcome = Outcome()
    async with grpc.aio.insecure_channel(services.address) as channel:
        stream = channel.stream_stream(METHOD)()
        await stream.write(bytes(range(255, 0, -1)))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        note_error(outcome, caught.value)
    assert (outcome.code.name, outcome.reason) == ("INVALID_ARGUMENT", "MALFORMED_MESSAGE")


@pytest.mark.parametrize("audio", [b"", bytes(2), bytes(1600)], ids=["none", "one sample", "50 ms"])
async def test_hardly_any_audio_is_no_error(services, audio: bytes):
    """A summary and no word."""
    outcome = await call(services.address, requests(audio))
    assert_well_formed(outcome)
    assert outcome.items == []


async def test_long_noise_is_survived(services):
    """Two minutes of loud noise: utterances are cut, memory is freed, nothing loops."""
    outcome = await call(services.address, requests(noise(120, level=0.3), size=200_000))
    assert_well_formed(outcome)
    longest = max(e.end_sample - e.start_sample for e in outcome.of("end_of_utterance"))
    assert longest <= 20 * RATE_HERTZ


async def test_a_client_that_never_half_closes_is_idle(services):
    """It gets what was said, then DEADLINE_EXCEEDED."""
    stay = asyncio.Event()

    async def messages():
        for request in requests(speech()):
            yield request
        await stay.wait()

    outcome = await call(services.address, messages())
    assert (outcome.code.name, outcome.reason) == ("DEADLINE_EXCEEDED", "IDLE")
    assert outcome.items


async def test_vanishing_clients_free_their_sessions(services):
    """More of them than there are sessions, and the next one is served."""
    async with grpc.aio.insecure_channel(services.address) as channel:
        stub = pb_grpc.SpeechTranslationServiceStub(channel)
        for _ in range(20):
            stream = stub.StreamingTranslate()
            await stream.write(Request(config=config()))
            await stream.read()
            await stream.write(Request(audio=speech()[:64_000]))
            stream.cancel()
    assert_well_formed(await retried(services.address))


async def test_the_17th_session_is_refused_with_a_time_to_retry(services):
    """Sixteen stay as they are."""
    async with grpc.aio.insecure_channel(services.address) as channel:
        stub = pb_grpc.SpeechTranslationServiceStub(channel)
        streams = []
        for _ in range(16):
            # Each has a limited time for its first message.
            stream = stub.StreamingTranslate()
            streams.append(stream)
            await stream.write(Request(config=config()))
            assert (await stream.read()).WhichOneof("message") == "session_started"
        refused = await call(services.address, requests(SECOND, size=len(SECOND)))
        assert (refused.code.name, refused.reason) == ("RESOURCE_EXHAUSTED", "SESSION_LIMIT")
        assert refused.has_retry
        for stream in streams:
            await stream.done_writing()
            assert (await stream.read()).WhichOneof("message") == "summary"
    assert_well_formed(await retried(services.address))


async def retried(address: str) -> Outcome:
    """A good stream, retried while sessions are still being freed, as a client would."""
    for _ in range(50):
        outcome = await call(address, requests(SECOND, size=len(SECOND)))
        if outcome.code is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            break
        await asyncio.sleep(0.1)
    return outcome
