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

from earvoice.client import AudioFormat, TranslationEvent, TranslationOptions
from earvoice.gateway.connection import telling_failures
from earvoice.gateway.door import Door
from earvoice.gateway.messages import StartMessage
from earvoice.gateway.speaker import Speaker
from earvoice.runtime.bootstrap import cannot_listen
from earvoice.runtime.errors import IdleError, InvalidAudioError, OutOfOrderError
from earvoice.runtime.settings import address_of

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


async def listen(door: Door) -> asyncio.Server:
    """Serve calls from now on, until what is returned is closed.

    Raises:
        OSError: the address cannot be listened at; the message names the setting.
    """
    settings = door.settings
    address = settings.audiosocket_host, settings.audiosocket_port
    try:
        server = await asyncio.start_server(partial(serve_call, door), *address)
    except OSError as error:
        raise cannot_listen(settings, "audiosocket_port", error, "audiosocket_host") from error
    _LOG.info("listening for calls", extra={"address": address_of(*address)})
    return server


async def serve_call(
    door: Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    async def close(_: int, __: str) -> None:
        writer.close()
        with suppress(OSError):  # the caller has gone
            await writer.wait_closed()

    async with telling_failures(_LOG, close):
        with door.counted():
            await _caption(door, _frames(reader, door.settings.idle_timeout_ms))


async def _frames(
    reader: asyncio.StreamReader, timeout_ms: int
) -> AsyncIterator[tuple[int, bytes]]:
    """Yield kind and content of each frame, until the call is over."""
    while True:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                kind, length = HEADER.unpack(await reader.readexactly(HEADER.size))
                content = await reader.readexactly(length)
        except TimeoutError as error:
            raise IdleError(f"audio did not come within {timeout_ms} ms") from error
        except (asyncio.IncompleteReadError, OSError):
            return
        if kind in (HANG_UP, ERROR):
            return
        yield kind, content


async def _caption(door: Door, frames: AsyncIterator[tuple[int, bytes]]) -> None:
    first = await anext(frames, None)
    if first is None:
        return  # a probe, which only connects
    kind, content = first
    if kind != CALL_ID or len(content) != UUID_BYTES:
        raise OutOfOrderError(f"a frame of kind {kind:#04x} came before the call's UUID")
    async for kind, sound in frames:  # noqa: B007 - of the first that has sound
        if kind != DTMF:
            break
    else:
        return  # nothing was said
    if kind not in RATES_HZ:
        raise _unknown(kind)
    options = TranslationOptions(
        target_languages=door.settings.audiosocket_languages,
        audio=AudioFormat("linear16", RATES_HZ[kind]),
    )
    start = StartMessage(options, publish=str(uuid.UUID(bytes=content)))

    async def tell(_: str, event: TranslationEvent, __: bytes) -> None:
        del event  # its readers are told

    async with (
        door.open(start, door.gatekeeper.trusted) as speaker,
        asyncio.TaskGroup() as group,
    ):
        await speaker.send(sound)
        listening = group.create_task(_listen(frames, kind, speaker))
        await speaker.run(tell)
        listening.cancel()


async def _listen(
    frames: AsyncIterator[tuple[int, bytes]], sound_kind: int, speaker: Speaker
) -> None:
    async for kind, content in frames:
        if kind == sound_kind:
            await speaker.send(content)
        elif kind != DTMF:
            raise _unknown(kind)
    await speaker.end()


def _unknown(kind: int) -> InvalidAudioError:
    return InvalidAudioError(f"a frame of kind {kind:#04x} is not known, or not of the call's rate")
