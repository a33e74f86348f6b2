"""Raw audio from a pipe, a file or a terminal: ``arecord -t raw … | earvoice translate -``."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import BinaryIO

    from earvoice.client.audio_format import AudioFormat

_LOG = logging.getLogger("earvoice.client")


class PcmStream:
    """Bytes without a header, read as they come.

    Args:
        source: an open binary file, such as ``sys.stdin.buffer``; its descriptor is read.
        audio: what the bytes are.
    """

    def __init__(self, source: BinaryIO, audio: AudioFormat) -> None:
        self._source = source
        self._audio = audio
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """End the audio now; what was read already is still yielded."""
        self._stopped.set()

    async def chunks(self, chunk_ms: int) -> AsyncIterator[bytes]:
        """Yield whole frames, at most ``chunk_ms`` at a time, until the source or ``stop`` ends it.

        A last, unfinished frame (a recorder that was killed) is dropped with a warning.
        """
        limit_bytes = self._audio.chunk_bytes(chunk_ms)
        rest = b""
        async for chunk in self._blocks(limit_bytes):
            rest += chunk
            whole_bytes = len(rest) - len(rest) % self._audio.frame_bytes
            if whole_bytes:
                yield rest[:whole_bytes]
            rest = rest[whole_bytes:]
        if rest:
            _LOG.warning("dropped %d bytes of an unfinished frame at the end", len(rest))

    async def _blocks(self, limit_bytes: int) -> AsyncIterator[bytes]:
        descriptor = self._source.fileno()
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            # The event loop cannot wait on regular files; they never keep one waiting either.
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
