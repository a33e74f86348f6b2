"""Asterisk's AudioSocket: the sound of one channel over TCP, under the call's UUID.

Asterisk connects, and takes sound back but no text: what is said goes to the readers of the stream
that the UUID names. A frame is a byte of kind, two of length (big-endian), and so many more.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

from earvoice.client import AudioFormat, TranslationOptions
from earvoice.gateway.connection import telling_failures
from earvoice.gateway.door import Door
from earvoice.gateway.messages import StartMessage
from earvoice.gateway.speaker import Speaker
from earvoice.runtime.errors import IdleError, InvalidAudioError, OutOfOrderError

HANG_UP, CALL_ID, DTMF, ERROR = 0x00, 0x01, 0x03, 0xFF
RATES_HZ = {
    0x10: 8_000,
    0x11: 12_000,
    0x12: 16_000,
    0x13: 24_000,
    0x14: 32_000,
    0x15: 44_100,
    0x16: 48_000,
}
"""Kinds of frames that carry 16-bit samples, little-endian."""
HEADER = struct.Struct(">BH")
UUID_BYTES = 16
_LOG = logging.getLogger(__name__)

Frame = tuple[int, bytes]
"""Kind and content."""


async def serve_call(
    door: Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    async def close(_: int, __: str) -> None:
        writer.close()
        with suppress(OSError):  # the caller has gone
            await writer.wait_closed()

    async with telling_failures(_LOG, close):
        with door.counted():
            await _caption(door, _frames(reader))


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[Frame]:
    """Yield each frame, until the call is over."""
    while True:
        try:
            kind, length = HEADER.unpack(await reader.readexactly(HEADER.size))
            content = await reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError):
            return  # hung up in its own way
        if kind in (HANG_UP, ERROR):
            return
        yield kind, content


async def _caption(door: Door, frames: AsyncIterator[Frame]) -> None:
    timeout_ms = door.settings.start_timeout_ms
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            begun = await _read_start(frames)
    except TimeoutError as error:
        raise IdleError(f"UUID and sound did not come within {timeout_ms} ms") from error
    if begun is None:
        return
    name, first = begun
    options = TranslationOptions(
        target_languages=door.settings.audiosocket_languages,
        audio=AudioFormat("linear16", RATES_HZ[first[0]]),
    )
    idle_ms = door.settings.idle_timeout_ms
    await door.caption_call(
        StartMessage(options, publish=name),
        door.gatekeeper.trusted,
        partial(_listen, frames, first, idle_ms),
    )


async def _read_start(frames: AsyncIterator[Frame]) -> tuple[str, Frame] | None:
    """Return the call's UUID and the first frame with sound; None if it ends before."""
    name = ""
    async for kind, content in frames:
        if not name:
            if kind != CALL_ID:
                raise OutOfOrderError(f"a frame of kind {kind:#04x} came before the call's UUID")
            if len(content) != UUID_BYTES:
                message = f"the call's UUID has {len(content)} bytes; allowed: {UUID_BYTES}"
                raise InvalidAudioError(message)
            name = str(uuid.UUID(bytes=content))
        elif kind in RATES_HZ:
            return name, (kind, content)
        elif kind != DTMF:
            raise _unknown(kind)
    return None  # a probe, or a caller who says nothing


async def _listen(
    frames: AsyncIterator[Frame], first: Frame, idle_ms: int, speaker: Speaker
) -> None:
    sound_kind, sound = first
    await speaker.send(sound)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(idle_ms / 1000) as silence:
            async for kind, content in frames:
                if kind == sound_kind:
                    silence.reschedule(None)  # the services may be behind
                    await speaker.send(content)
                    silence.reschedule(loop.time() + idle_ms / 1000)
                elif kind != DTMF:
                    raise _unknown(kind)
    except TimeoutError as error:
        raise IdleError(f"audio did not come within {idle_ms} ms") from error


def _unknown(kind: int) -> InvalidAudioError:
    return InvalidAudioError(f"a frame of kind {kind:#04x} is not known, or not of the call's rate")
