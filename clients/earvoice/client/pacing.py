"""Sending a recording as if it were spoken now: a chunk leaves when its last sample exists."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from earvoice.client.audio_format import AudioFormat

REALTIME_CHUNK_MS = 80
# Full speed: fewer messages, each far below the server's 1 MiB.
FAST_CHUNK_MS = 500


class Clock(Protocol):
    """A monotonic clock that can be waited on."""

    def now_s(self) -> float:
        """Seconds since some fixed moment."""

    async def sleep_s(self, duration_s: float) -> None:
        """Return after this many seconds."""


class MonotonicClock:
    """The machine's own clock."""

    def now_s(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    async def sleep_s(self, duration_s: float) -> None:
        """Return after this many seconds."""
        await asyncio.sleep(duration_s)


async def pace(
    chunks: Iterable[bytes], audio: AudioFormat, clock: Clock | None = None
) -> AsyncIterator[bytes]:
    """Yield each chunk when its last sample exists; the first sample exists at the first request.

    A late consumer is not waited for: the chunks after catch up, as a microphone's buffer would.
    """
    clock = clock or MonotonicClock()
    origin_s = clock.now_s()
    sent_bytes = 0
    for chunk in chunks:
        sent_bytes += len(chunk)
        wait_s = origin_s + audio.duration_ms(sent_bytes) / 1000 - clock.now_s()
        if wait_s > 0:
            await clock.sleep_s(wait_s)
        yield chunk


async def send_fast(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Yield each chunk at once; the stream's own flow control is the only brake."""
    for chunk in chunks:
        yield chunk
