"""One call with raw bytes: what is sent, how it is read, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from tests.e2e.calling import Outcome, Request, config, note_error, pieces, speech

METHOD = "/earvoice.api.v1.SpeechTranslationService/StreamingTranslate"
# Over the server's own limits of some seconds: whoever takes longer hangs.
PATIENCE_S = 60
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 1 << 20),
]
# What grpc.aio makes up itself when a call ends while it writes: the server's status is lost.
LOST_STATUS = "Internal error from Core"
# A small window of the transport, so that "never read" begins after a few responses.
SMALL_WINDOW = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]


@dataclass(frozen=True)
class Ending:
    """How a call ended.

    Attributes:
        code: name of the status; HUNG where none came, LOST where our own library dropped it.
    """

    code: str
    reason: str = ""
    details: str = ""


@asynccontextmanager
async def open_channel(address: str, *, small: bool = False) -> AsyncIterator[grpc.aio.Channel]:
    options = OPTIONS + (SMALL_WINDOW if small else [])
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield channel


async def exchange(address: str, messages: Iterable[bytes], pause_s: float = 0.0) -> Ending:
    """Send messages as fast as they are taken, or with pauses; read everything."""
    async with open_channel(address) as channel:
        call = channel.stream_stream(METHOD)()
        writing = asyncio.create_task(write_all(call, messages, pause_s))
        try:
            return await end_of(call)
        finally:
            writing.cancel()
            await asyncio.wait({writing})


async def write_all(
    call: grpc.aio.StreamStreamCall, messages: Iterable[bytes], pause_s: float = 0.0
) -> None:
    """Write until the messages or the call end, and half-close."""
    try:
        for message in messages:
            await call.write(message)
            await asyncio.sleep(pause_s)
        await call.done_writing()
    except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
        return


async def end_of(call: grpc.aio.StreamStreamCall) -> Ending:
    """Read until the status."""
    outcome = Outcome()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while await call.read() is not grpc.aio.EOF:
                pass
            return Ending((await call.code()).name)
    except grpc.aio.AioRpcError as error:
        note_error(outcome, error)
        code = "LOST" if error.details() == LOST_STATUS else outcome.code.name
        return Ending(code, outcome.reason, outcome.details)
    except asyncio.CancelledError:
        if call.cancelled():
            return Ending("CANCELLED")
        raise
    except TimeoutError:
        return Ending("HUNG")


SECONDS_OF_SPEECH = 3
SPEECH = speech()[: 2 * 16_000 * SECONDS_OF_SPEECH]


def configured(**changes: object) -> bytes:
    return Request(config=config(**changes)).SerializeToString()


def spoken(size: int = 3200) -> list[bytes]:
    return [Request(audio=piece).SerializeToString() for piece in pieces(SPEECH, size)]


def updated() -> bytes:
    update = pb.StreamingUpdate(beam_size=2)
    return Request(update=update).SerializeToString()
