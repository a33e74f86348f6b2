"""Audio and updates that were sent and may have to be sent again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator

from earvoice.client.errors import AudioSourceError
from earvoice.client.options import TranslationUpdate

# The server refuses audio messages above 1 MiB.
MESSAGE_LIMIT_BYTES = 1024 * 1024
UPDATE_BYTES = 256
"""Size that an update is counted as."""


class HalfFrameError(AudioSourceError):
    """Audio that ends inside a frame: it was cut off, or has another format."""


async def cut_messages(
    source: AsyncIterable[bytes | TranslationUpdate],
    frame_bytes: int,
    limit_bytes: int = MESSAGE_LIMIT_BYTES,
) -> AsyncIterator[bytes | TranslationUpdate]:
    """Yield audio that is cut anywhere as messages of whole frames, and updates in their place.

    Raises:
        HalfFrameError: after the whole frames, if the audio ends inside a frame.
    """
    limit_bytes -= limit_bytes % frame_bytes
    rest = b""
    async for chunk in source:
        if isinstance(chunk, TranslationUpdate):
            yield chunk
            continue
        rest += chunk
        whole_bytes = len(rest) - len(rest) % frame_bytes
        for start in range(0, whole_bytes, limit_bytes):
            yield rest[start : min(start + limit_bytes, whole_bytes)]
        rest = rest[whole_bytes:]
    if rest:
        raise HalfFrameError(f"the audio ends inside a frame: {len(rest)} of {frame_bytes} bytes")


def held_bytes(content: bytes | TranslationUpdate) -> int:
    """Return how many bytes audio or an update counts as."""
    return len(content) if isinstance(content, bytes) else UPDATE_BYTES


class AudioLog:
    """A session's audio and updates since the position that the server has acknowledged.

    One task adds, and one at a time reads. Normally they keep pace; while nobody reads, or the
    reader is behind, new content is kept up to the limit.

    Args:
        limit_bytes: audio and updates kept, 0 or more; beyond it, content already sent is dropped,
            oldest first.
        start_sample: position of the first frame to be added.

    Attributes:
        start_sample: position of the first frame still kept.
    """

    def __init__(self, frame_bytes: int, limit_bytes: int, start_sample: int = 0) -> None:
        self._frame_bytes = frame_bytes
        self._limit_bytes = limit_bytes
        # Each entry has the position of its end.
        self._entries: deque[tuple[int, bytes | TranslationUpdate]] = deque()
        self._first_index = 0
        self._next_index = 0
        self._held_bytes = 0
        self._end_sample = start_sample
        self._ended = False
        self._keeps_pace = False
        self._changed = asyncio.Condition()
        self.start_sample = start_sample

    async def add(self, content: bytes | TranslationUpdate) -> None:
        """Add whole frames or an update, and wait until there is room for more."""
        async with self._changed:
            if isinstance(content, bytes):
                self._end_sample += len(content) // self._frame_bytes
            self._held_bytes += held_bytes(content)
            self._entries.append((self._end_sample, content))
            self._changed.notify_all()
            await self._changed.wait_for(self._has_room)

    async def end(self) -> None:
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def acknowledge(self, sample: int) -> None:
        async with self._changed:
            while self._entries and _is_before(*self._entries[0], sample):
                self._forget_first()
            self._changed.notify_all()

    async def read(self, start_sample: int) -> AsyncIterator[bytes | TranslationUpdate]:
        """Yield audio and updates from a position on, as they come, until the end."""
        self._next_index = self._first_index
        self._keeps_pace = False
        position = start_sample
        while (entry := await self._next()) is not None:
            end_sample, content = entry
            if _is_before(end_sample, content, start_sample):
                continue
            if isinstance(content, bytes):
                begin_sample = end_sample - len(content) // self._frame_bytes
                skipped_bytes = max(0, position - begin_sample) * self._frame_bytes
                position = end_sample
                yield content[skipped_bytes:]
            else:
                yield content

    async def stop_reading(self) -> None:
        """Note that nobody reads now: new content is kept up to the limit."""
        async with self._changed:
            self._keeps_pace = False
            self._changed.notify_all()

    async def _next(self) -> tuple[int, bytes | TranslationUpdate] | None:
        async with self._changed:
            if not self._has_more():
                # The reader has caught up: from here on it sets the pace.
                self._keeps_pace = True
                self._changed.notify_all()
            while not self._has_more():
                if self._ended:
                    return None
                await self._changed.wait()
            entry = self._entries[self._next_index - self._first_index]
            self._next_index += 1
            while self._held_bytes > self._limit_bytes and self._first_index < self._next_index - 1:
                self._forget_first()
            return entry

    def _has_more(self) -> bool:
        return self._next_index < self._first_index + len(self._entries)

    def _has_room(self) -> bool:
        if self._keeps_pace:
            return not self._has_more()
        return self._held_bytes < self._limit_bytes

    def _forget_first(self) -> None:
        self.start_sample, content = self._entries.popleft()
        self._first_index += 1
        self._next_index = max(self._next_index, self._first_index)
        self._held_bytes -= held_bytes(content)


def _is_before(end_sample: int, content: bytes | TranslationUpdate, sample: int) -> bool:
    """Say whether content lies before a sample; updates at the sample itself do not.

    The server may not have taken those.
    """
    return end_sample <= sample if isinstance(content, bytes) else end_sample < sample
