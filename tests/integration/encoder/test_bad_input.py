from __future__ import annotations

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.encoder.audio import read_format
from earvoice.encoder.session import EncodeSession
from earvoice.runtime.errors import InvalidAudioError
from tests.integration.encoder.running_encoder import MAX_UTTERANCE_MS
from tests.requests import audio, finish, open_session, reset

pytestmark = pytest.mark.torch

NAN = np.array([0.0, np.nan], "<f4").tobytes()
FLOAT32 = types_pb2.AUDIO_ENCODING_FLOAT32
INVALID = grpc.StatusCode.INVALID_ARGUMENT
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION

CASES = {
    "0 Hz": ([open_session(rate_hz=0)], INVALID, "INVALID_FIELD"),
    "7 kHz": ([open_session(rate_hz=7000)], INVALID, "INVALID_FIELD"),
    "no encoding": ([open_session(encoding=0)], INVALID, "INVALID_FIELD"),
    "unknown encoding": ([open_session(encoding=77)], INVALID, "INVALID_FIELD"),
    "3 channels": ([open_session(channels=3)], INVALID, "INVALID_FIELD"),
    "negative channels": ([open_session(channels=-1)], INVALID, "INVALID_FIELD"),
    "wrong hash": ([open_session(model_hash="ab")], PRECONDITION, "MODEL_MISMATCH"),
    "no open": ([audio(1, b"ab")], PRECONDITION, "OUT_OF_ORDER"),
    "second open": ([open_session(), open_session()], PRECONDITION, "OUT_OF_ORDER"),
    "revision skipped": ([open_session(), audio(2)], PRECONDITION, "OUT_OF_ORDER"),
    "audio after finish": (
        [open_session(), finish(1, 0), audio(2)],
        PRECONDITION,
        "OUT_OF_ORDER",
    ),
    "broken frame": ([open_session(), audio(1, b"abc")], INVALID, "INVALID_AUDIO"),
    "broken stereo frame": (
        [open_session(channels=2), audio(1, b"abcdef")],
        INVALID,
        "INVALID_AUDIO",
    ),
    "NaN": ([open_session(encoding=FLOAT32), audio(1, NAN)], INVALID, "INVALID_AUDIO"),
    "end not received": ([open_session(), finish(1, 1)], INVALID, "INVALID_FIELD"),
    "end before start": (
        [open_session(), reset(0, 9), finish(1, 8)],
        INVALID,
        "INVALID_FIELD",
    ),
    "negative start": ([open_session(), reset(0, -1)], INVALID, "INVALID_FIELD"),
    "nothing set": ([open_session(), pb.EncodeRequest()], INVALID, "INVALID_FIELD"),
    "too long": (
        [open_session(), audio(1, bytes(MAX_UTTERANCE_MS * 32 + 2))],
        grpc.StatusCode.OUT_OF_RANGE,
        "SESSION_TOO_LONG",
    ),
}


def reason_of(error: grpc.aio.AioRpcError) -> str:
    info = error_details_pb2.ErrorInfo()
    (detail,) = [
        item
        for item in rpc_status.from_call(AsCall(error)).details
        if item.Is(error_details_pb2.ErrorInfo.DESCRIPTOR)
    ]
    detail.Unpack(info)
    assert info.domain == "earvoice"
    return info.reason


class AsCall:
    """What `rpc_status` wants of a finished call."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self._error = error

    def code(self):
        return self._error.code()

    def details(self):
        return self._error.details()

    def trailing_metadata(self):
        return self._error.trailing_metadata()


@pytest.mark.parametrize("name", CASES)
async def test_bad_input_has_a_status_and_a_reason(encoder, name):
    """What a caller does wrong is answered with its own code and reason, never INTERNAL."""
    requests, code, reason = CASES[name]
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await encoder.ask(*requests)
    assert (error.value.code(), reason_of(error.value)) == (code, reason)
    assert encoder.limit.active == 0


async def test_random_bytes_are_malformed(encoder):
    """Bytes that are no message are INVALID_ARGUMENT, and the next session is served."""
    raw = encoder.channel.stream_stream("/earvoice.api.v1.EncoderService/Encode")
    call = raw()
    await call.write(b"\xff\xfe\x00garbage")
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call.read()
    assert (error.value.code(), reason_of(error.value)) == (INVALID, "MALFORMED_MESSAGE")
    await encoder.ask(open_session())


@hypothesis_settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(max_size=4000), encoding=st.integers(1, 4), rate_hz=st.integers(8000, 48000))
def test_any_bytes_are_audio_or_an_error_of_ours(model, data, encoding, rate_hz):
    """Whatever bytes are sent as audio, states are finite or the audio is refused."""
    wire = types_pb2.AudioFormat(encoding=encoding, sample_rate_hertz=rate_hz)
    frame_bytes = read_format(wire).frame_bytes
    session = EncodeSession(model, MAX_UTTERANCE_MS)
    session.apply(open_session(encoding=encoding, rate_hz=rate_hz))
    try:
        answer = session.apply(finish(1, len(data) // frame_bytes, data))
    except InvalidAudioError:
        return
    assert np.isfinite(np.frombuffer(answer.encoded.states.data, "<f4")).all()
