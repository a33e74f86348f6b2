"""The audio of a session that may still be needed, and when each part of it arrived."""

from __future__ import annotations

import asyncio
import bisect
from collections import deque

from earvoice.runtime.errors import InvalidAudioError

MESSAGE_LIMIT_BYTES = 1024 * 1024
TINY_FRAMES = 8


class AudioBuffer:
    """Raw frames since the utterance's start, positions counted from the session's first.

    One task appends, another reads. Appending waits while too much has not been worked on, so
    memory is bounded whatever the client sends. What ``wait_for`` waits for always gets in: a
    segment longer than the limit would never be whole.

    Args:
        frame_bytes: bytes of one frame: bytes per sample times channels.
        limit_samples: frames that may wait to be worked on; the message that passes it gets in.
        start_sample: position of the first frame that comes.
    """

    def __init__(self, frame_bytes: int, limit_samples: int, start_sample: int = 0) -> None:
        self._frame_bytes = frame_bytes
        self._limit_samples = limit_samples
        self._data = bytearray()
        self._start_sample = start_sample
        self._worked_sample = start_sample
        self._wanted_sample = 0
        self._is_interrupted = False
        self._changed = asyncio.Condition()
        # Ends and arrival times of the messages whose audio is still held.
        self._end_samples: deque[int] = deque()
        self._arrivals_s: deque[float] = deque()
        self._newest_frames = TINY_FRAMES
        self.received_samples = start_sample
        self.ended = False

    async def append(self, data: bytes, arrival_s: float) -> None:
        """Add a message's frames.

        Args:
            data: whole frames.
            arrival_s: when they arrived, on the session's monotonic clock.

        Raises:
            InvalidAudioError: broken frames, or too many bytes.
        """
        if len(data) % self._frame_bytes:
            raise InvalidAudioError(
                f"audio of {len(data)} bytes is not whole frames of {self._frame_bytes} bytes"
            )
        if len(data) > MESSAGE_LIMIT_BYTES:
            raise InvalidAudioError(
                f"audio of {len(data)} bytes is more than {MESSAGE_LIMIT_BYTES} a message"
            )
        if not data:
            return
        async with self._changed:
            await self._changed.wait_for(self._has_room)
            self._data += data
            self.received_samples += len(data) // self._frame_bytes
            self._note_arrival(len(data) // self._frame_bytes, arrival_s)
            self._changed.notify_all()

    async def end(self) -> None:
        """Say that no more audio will come."""
        async with self._changed:
            self.ended = True
            self._changed.notify_all()

    async def wait_for(self, sample: int) -> None:
        """Return when ``sample`` frames have come, the audio has ended, or on ``interrupt``."""
        async with self._changed:
            self._wanted_sample = sample
            self._changed.notify_all()
            await self._changed.wait_for(
                lambda: self.ended or self._is_interrupted or self.received_samples >= sample
            )
            self._is_interrupted = False

    async def interrupt(self) -> None:
        """Make ``wait_for`` return, now or when it is called: there is something else to do."""
        async with self._changed:
            self._is_interrupted = True
            self._changed.notify_all()

    def read(self, start_sample: int, end_sample: int) -> bytes:
        """Return the frames of an interval that is still held.

        Raises:
            IndexError: part of it is not held.
        """
        if not self._start_sample <= start_sample <= end_sample <= self.received_samples:
            raise IndexError(
                f"[{start_sample}, {end_sample}) is not within "
                f"[{self._start_sample}, {self.received_samples})"
            )
        first = (start_sample - self._start_sample) * self._frame_bytes
        last = (end_sample - self._start_sample) * self._frame_bytes
        return bytes(memoryview(self._data)[first:last])

    def arrival_s(self, sample: int) -> float:
        """Return when the frame before ``sample`` arrived; the first known time if long ago."""
        index = bisect.bisect_left(self._end_samples, sample)
        return self._arrivals_s[min(index, len(self._arrivals_s) - 1)]

    async def mark_worked(self, sample: int) -> None:
        """Say that audio before ``sample`` has been worked on: the client may send more."""
        async with self._changed:
            self._worked_sample = sample
            self._changed.notify_all()

    def release_before(self, sample: int) -> None:
        """Forget audio before ``sample``: an utterance ended there, or what it said is history."""
        del self._data[: (sample - self._start_sample) * self._frame_bytes]
        self._start_sample = sample
        while len(self._end_samples) > 1 and self._end_samples[0] < sample:
            self._end_samples.popleft()
            self._arrivals_s.popleft()

    def _note_arrival(self, frames: int, arrival_s: float) -> None:
        """Note when the newest frames came; of a row of tiny messages, when the last of them did.

        A client that sends single frames must not have us hold more of times than of audio.
        """
        if max(frames, self._newest_frames) < TINY_FRAMES:
            self._end_samples[-1] = self.received_samples
            self._arrivals_s[-1] = arrival_s
            self._newest_frames += frames
            return
        self._end_samples.append(self.received_samples)
        self._arrivals_s.append(arrival_s)
        self._newest_frames = frames

    def _has_room(self) -> bool:
        waiting_samples = self.received_samples - self._worked_sample
        return waiting_samples < self._limit_samples or self.received_samples < self._wanted_sample
