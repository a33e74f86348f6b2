"""A session with the encoder service."""

from __future__ import annotations

from earvoice.api.v1 import encoder_service_pb2 as encoder_pb
from earvoice.api.v1 import types_pb2
from earvoice.policy.backend import Encoded
from earvoice.policy.backends.call import BackendCall
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.config import ENCODING_NUMBERS
from earvoice.policy.wire.evidence import evidence_of


class EncoderStream:
    """An open encoder session.

    Args:
        call: the stream.
    """

    def __init__(self, call: BackendCall) -> None:
        self._call = call
        self._revision = 0

    async def open(self, options: StreamOptions, model_hash: str, session_id: str) -> None:
        """Open the session."""
        audio = options.audio_format
        command = encoder_pb.EncodeOpen(
            audio_format=types_pb2.AudioFormat(
                encoding=ENCODING_NUMBERS[audio.encoding],
                sample_rate_hertz=audio.sample_rate_hertz,
                channel_count=audio.channel_count,
            ),
            model_hash=model_hash,
            session_id=session_id,
            enable_source_transcript=options.sends_source_transcript,
            # The guards let nothing be written then, whatever the network would make of it.
            skip_silence=options.uses_guards,
        )
        await self._ask(encoder_pb.EncodeRequest(open=command))

    async def encode(self, audio: bytes) -> Encoded:
        """Add audio to the utterance and return the next revision."""
        self._revision += 1
        command = encoder_pb.EncodeAudio(revision=self._revision, data=audio)
        return await self._encoded(encoder_pb.EncodeRequest(audio=command))

    async def finish(self, audio: bytes, end_sample: int) -> Encoded:
        """Add the rest, end the utterance and return the last revision."""
        self._revision += 1
        command = encoder_pb.EncodeFinish(
            revision=self._revision, data=audio, end_sample=end_sample
        )
        return await self._encoded(encoder_pb.EncodeRequest(finish=command))

    async def reset(self, utterance: int, start_sample: int) -> None:
        """Forget the utterance and begin another."""
        self._revision = 0
        command = encoder_pb.EncodeReset(utterance=utterance, start_sample=start_sample)
        await self._ask(encoder_pb.EncodeRequest(reset=command))

    async def _encoded(self, request: encoder_pb.EncodeRequest) -> Encoded:
        clock = self._call.clock()
        answer = await self._ask(request)
        encoded = answer.encoded
        timings = clock.timings(answer.timings)
        return Encoded(encoded.states, evidence_of(encoded), timings)

    async def _ask(self, request: encoder_pb.EncodeRequest) -> encoder_pb.EncodeResponse:
        await self._call.write(request)
        answer: encoder_pb.EncodeResponse = await self._call.read()
        return answer
