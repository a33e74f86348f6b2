"""Requests to the encoder and to the decoder, written shortly."""

from __future__ import annotations

from earvoice.api.v1 import decoder_service_pb2 as decoder_pb
from earvoice.api.v1 import encoder_service_pb2 as encoder_pb
from earvoice.api.v1 import types_pb2

STATE_DIMENSION = 4


def open_session(
    encoding=types_pb2.AUDIO_ENCODING_LINEAR16, rate_hz=16000, channels=1, **fields
) -> encoder_pb.EncodeRequest:
    audio_format = types_pb2.AudioFormat(
        encoding=encoding, sample_rate_hertz=rate_hz, channel_count=channels
    )
    return encoder_pb.EncodeRequest(open=encoder_pb.EncodeOpen(audio_format=audio_format, **fields))


def audio(revision, data=b"") -> encoder_pb.EncodeRequest:
    return encoder_pb.EncodeRequest(audio=encoder_pb.EncodeAudio(revision=revision, data=data))


def finish(revision, end_sample, data=b"") -> encoder_pb.EncodeRequest:
    return encoder_pb.EncodeRequest(
        finish=encoder_pb.EncodeFinish(revision=revision, data=data, end_sample=end_sample)
    )


def reset(utterance, start_sample) -> encoder_pb.EncodeRequest:
    return encoder_pb.EncodeRequest(
        reset=encoder_pb.EncodeReset(utterance=utterance, start_sample=start_sample)
    )


def opening(**changes: object) -> decoder_pb.DecodeRequest:
    """An open request that is fine but for the changes."""
    fields: dict[str, object] = {"target_language_code": "de", "session_id": "s"}
    return decoder_pb.DecodeRequest(open=decoder_pb.DecodeOpen(**(fields | changes)))  # type: ignore[arg-type]


def states(
    count: int = 2, utterance: int = 0, revision: int = 1, **changes: object
) -> decoder_pb.DecodeRequest:
    """Zeros of the right size but for the changes."""
    fields: dict[str, object] = {
        "states_id": types_pb2.StatesId(utterance=utterance, revision=revision),
        "state_count": count,
        "dimension": STATE_DIMENSION,
        "element_type": types_pb2.ELEMENT_TYPE_FLOAT32,
        "data": bytes(count * STATE_DIMENSION * 4),
    }
    message = types_pb2.States(**(fields | changes))  # type: ignore[arg-type]
    return decoder_pb.DecodeRequest(states=message)


def generate(generation_id: int = 1, **changes: object) -> decoder_pb.DecodeRequest:
    """A generate request that is fine but for the changes."""
    fields: dict[str, object] = {
        "generation_id": generation_id,
        "states_id": types_pb2.StatesId(utterance=0, revision=1),
        "max_new_tokens": 8,
    }
    return decoder_pb.DecodeRequest(generate=decoder_pb.Generate(**(fields | changes)))  # type: ignore[arg-type]


def halt(generation_id: int) -> decoder_pb.DecodeRequest:
    return decoder_pb.DecodeRequest(halt=decoder_pb.Halt(generation_id=generation_id))
