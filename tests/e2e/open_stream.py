"""A stream that a test drives message by message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import speech_translation_service_pb2_grpc as pb_grpc
from tests.e2e.calling import Outcome, Request, config, note_error, pieces


class OpenStream:
    """A running stream, and what it gave so far."""

    def __init__(self, stream: grpc.aio.StreamStreamCall) -> None:
        self._stream = stream
        self.outcome = Outcome()

    async def send(self, *messages: Request) -> None:
        """Write messages."""
        for message in messages:
            await self._stream.write(message)

    async def end_audio(self) -> None:
        """Half-close."""
        await self._stream.done_writing()

    async def read_until(self, kind: str) -> pb.StreamingTranslateResponse:
        """Read up to the first response of a kind."""
        while True:
            response = await self._stream.read()
            assert response is not grpc.aio.EOF, f"the stream ended before any {kind}"
            self.outcome.responses.append(response)
            if response.WhichOneof("message") == kind:
                return response

    async def read_rest(self) -> Outcome:
        """Read to the end and the status."""
        try:
            while (response := await self._stream.read()) is not grpc.aio.EOF:
                self.outcome.responses.append(response)
        except grpc.aio.AioRpcError as error:
            note_error(self.outcome, error)
        return self.outcome


@asynccontextmanager
async def open_stream(
    address: str, options: list | None = None, **changes: object
) -> AsyncIterator[OpenStream]:
    """A stream whose config has been sent."""
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stream = OpenStream(pb_grpc.SpeechTranslationServiceStub(channel).StreamingTranslate())
        await stream.send(Request(config=config(**changes)))
        yield stream


def audio_messages(audio: bytes) -> list[Request]:
    """Audio as messages."""
    return [Request(audio=piece) for piece in pieces(audio)]


def halves(audio: bytes) -> tuple[list[Request], list[Request]]:
    """Audio as messages, before and after its middle."""
    messages = audio_messages(audio)
    return messages[: len(messages) // 2], messages[len(messages) // 2 :]
