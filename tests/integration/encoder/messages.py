"""Requests, written shortly."""

from __future__ import annotations

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import types_pb2


def open_session(
    encoding=types_pb2.AUDIO_ENCODING_LINEAR16, rate_hz=16000, channels=1, **fields
) -> pb.EncodeRequest:
    audio_format = types_pb2.AudioFormat(
        encoding=encoding, sample_rate_hertz=rate_hz, channel_count=channels
    )
    return pb.EncodeRequest(open=pb.EncodeOpen(audio_format=audio_format, **fields))


def audio(revision, data=b"") -> pb.EncodeRequest:
    return pb.EncodeRequest(audio=pb.EncodeAudio(revision=revision, data=data))


def finish(revision, end_sample, data=b"") -> pb.EncodeRequest:
    return pb.EncodeRequest(
        finish=pb.EncodeFinish(revision=revision, data=data, end_sample=end_sample)
    )


def reset(utterance, start_sample) -> pb.EncodeRequest:
    return pb.EncodeRequest(reset=pb.EncodeReset(utterance=utterance, start_sample=start_sample))
