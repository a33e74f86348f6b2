"""Pacing a session's audio, and reading audio from byte streams."""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import stat
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import BinaryIO

from earvoice.runtime.audio_format import AudioFormat

REALTIME_CHUNK_MS = 80
# Full speed: fewer messages, each far below the server's 1 MiB.
FAST_CHUNK_MS = 500

_TEE_CHUNKS = 8
_LOG = logging.getLogger("earvoice.client")


async def pace(
    chunks: Iterable[bytes] | AsyncIterable[bytes],
    audio: AudioFormat,
    now_s: Callable[[], float] = time.monotonic,
    sleep_s: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[bytes]:
    """Yield each chunk when its last sample exists; the first sample exists at the first request.

    It does not wait for a late consumer: later chunks catch up, as a microphone's buffer would.
    """
    origin_s = now_s()
    sent_bytes = 0
    async for chunk in send_fast(chunks):
        sent_bytes += len(chunk)
        wait_s = origin_s + audio.duration_ms(sent_bytes) / 1000 - now_s()
        if wait_s > 0:
            await sleep_s(wait_s)
        yield chunk


def send_fast(chunks: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield each chunk at once; the stream's own flow control is the only brake."""
    return aiter(chunks if isinstance(chunks, AsyncIterable) else _one_by_one(chunks))


async def _one_by_one(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@asynccontextmanager
async def tee(
    source: AsyncIterable[bytes], count: int
) -> AsyncIterator[Sequence[AsyncIterable[bytes]]]:
    """Give the same audio to several readers, at the pace of the slowest.

    The source is first read when one of them reads, and an error of it reaches all.
    """
    if count == 1:
        yield [source]
        return
    queues = [_Queue(_TEE_CHUNKS) for _ in range(count)]
    pump: asyncio.Task[None] | None = None

    async def read(queue: _Queue) -> AsyncIterator[bytes]:
        nonlocal pump
        pump = pump or asyncio.create_task(_fill(queues, source))
        while (item := await queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    try:
        yield [read(queue) for queue in queues]
    finally:
        if pump is not None:
            pump.cancel()
            await asyncio.wait({pump})


_Queue = asyncio.Queue[bytes | Exception | None]


async def _fill(queues: Sequence[_Queue], source: AsyncIterable[bytes]) -> None:
    end: Exception | None = None
    try:
        async for chunk in source:
            for queue in queues:
                await queue.put(chunk)
    except Exception as error:  # noqa: BLE001 - raised by the readers
        end = error
    for queue in queues:
        await queue.put(end)


async def whole_frames(blocks: AsyncIterable[bytes], audio: AudioFormat) -> AsyncIterator[bytes]:
    """Yield raw audio that was cut anywhere as whole frames, as soon as they are complete.

    An incomplete last frame (of a recorder that was killed) is dropped with a warning.
    """
    rest = b""
    async for block in blocks:
        rest += block
        whole_bytes = len(rest) - len(rest) % audio.frame_bytes
        if whole_bytes:
            yield rest[:whole_bytes]
        rest = rest[whole_bytes:]
    if rest:
        _LOG.warning("dropped %d bytes of an unfinished frame at the end", len(rest))


class ByteStream:
    """Bytes as they come: ``arecord -t raw … | earvoice translate -``.

    Args:
        source: an open binary file, such as ``sys.stdin.buffer``; read through its descriptor.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """End the bytes now; what was already read is still yielded."""
        self._stopped.set()

    async def blocks(self, limit_bytes: int) -> AsyncIterator[bytes]:
        """Yield up to ``limit_bytes`` at a time, until the source or ``stop`` ends them."""
        descriptor = self._source.fileno()
        if not _can_be_waited_for(descriptor):
            # Regular files, /dev/null and the like never block.
            while not self._stopped.is_set() and (block := os.read(descriptor, limit_bytes)):
                yield block
            return
        reader = asyncio.StreamReader(limit=limit_bytes)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._source
        )
        stopping = asyncio.create_task(self._stopped.wait())
        try:
            while block := await _read_unless(stopping, reader, limit_bytes):
                yield block
        finally:
            stopping.cancel()
            transport.close()


def _can_be_waited_for(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISCHR(mode):
        # Terminals and sound devices can, memory devices cannot: trying is the only way to know.
        with selectors.DefaultSelector() as selector:
            try:
                selector.register(descriptor, selectors.EVENT_READ)
            except OSError:
                return False
            return True
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def _read_unless(
    stopping: asyncio.Task[bool], reader: asyncio.StreamReader, limit_bytes: int
) -> bytes:
    """Return the next bytes; none at the end of the source or once ``stopping`` is done."""
    reading = asyncio.create_task(reader.read(limit_bytes))
    try:
        await asyncio.wait({stopping, reading}, return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else b""
    finally:
        reading.cancel()
