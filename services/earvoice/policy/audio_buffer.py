"""The audio that a session may still need, and when it arrived."""

from __future__ import annotations

import asyncio
import bisect
from collections import deque

from earvoice.runtime.audio_format import AudioFormat
from earvoice.runtime.errors import InvalidAudioError

MESSAGE_LIMIT_BYTES = 1024 * 1024
TINY_FRAMES = 8
WINDOW_S = 60.0


class ArrivalClock:
    """Estimates the origin of a paced stream.

    A client that sends in real time sends a chunk as soon as its last sample exists, so each
    message implies an origin: its arrival minus the audio so far. The earliest was delayed least.
    Sound cards drift (50 ppm are 180 ms an hour), so only a sliding window counts.
    """

    def __init__(self, sample_rate_hertz: int) -> None:
        self._rate = sample_rate_hertz
        # (arrival, origin), origins increasing: the first is the window's earliest.
        self._origins: deque[tuple[float, float]] = deque()

    def note(self, received_samples: int, arrival_s: float) -> None:
        origin_s = arrival_s - received_samples / self._rate
        while self._origins and self._origins[-1][1] >= origin_s:
            self._origins.pop()
        self._origins.append((arrival_s, origin_s))
        while self._origins[0][0] < arrival_s - WINDOW_S:
            self._origins.popleft()

    def assume(self, origin_s: float, now_s: float) -> None:
        """Take over an origin from elsewhere: the first audio here may be a late repetition."""
        self._origins.append((now_s, origin_s))

    @property
    def origin_s(self) -> float:
        """When the first sample existed, on the clock of ``note``."""
        return self._origins[0][1]


class AudioBuffer:
    """Raw frames since the utterance's start, positions counted from the session's first.

    One task appends, another reads. Appending waits while too much audio is unprocessed, so
    memory is bounded whatever the client sends. Audio that ``wait_for`` waits for always gets in:
    otherwise a segment longer than the limit would never be complete.

    Attributes:
        received_samples: positions before this have been received.
        arrivals: knows when the session's first sample existed.
    """

    def __init__(
        self, audio_format: AudioFormat, limit_samples: int, start_sample: int = 0
    ) -> None:
        self._frame_bytes = audio_format.frame_bytes
        self.arrivals = ArrivalClock(audio_format.sample_rate_hz)
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
        self._failure: Exception | None = None

    async def append(self, data: bytes, arrival_s: float) -> None:
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
        frames = len(data) // self._frame_bytes
        async with self._changed:
            while (
                self.received_samples - self._worked_sample >= self._limit_samples
                and self.received_samples >= self._wanted_sample
            ):
                await self._changed.wait()
            self._data += data
            self.received_samples += frames
            self.arrivals.note(self.received_samples, arrival_s)
            # For a client that sends single frames, the times must not take more memory than the
            # audio: a row of tiny messages shares the time of its last.
            if max(frames, self._newest_frames) < TINY_FRAMES:
                self._end_samples[-1] = self.received_samples
                self._arrivals_s[-1] = arrival_s
                self._newest_frames += frames
            else:
                self._end_samples.append(self.received_samples)
                self._arrivals_s.append(arrival_s)
                self._newest_frames = frames
            if self.received_samples >= self._wanted_sample:
                self._changed.notify_all()

    async def end(self) -> None:
        async with self._changed:
            self.ended = True
            self._changed.notify_all()

    async def fail(self, error: Exception) -> None:
        """Say that no more audio will come because of an error; what has come is still heard."""
        async with self._changed:
            self._failure = error
            self._changed.notify_all()

    async def wait_for(self, sample: int) -> None:
        """Return when ``sample`` frames have come, the audio has ended, or on ``interrupt``.

        Raises what ``fail`` was given if they will not come.
        """
        async with self._changed:
            self._wanted_sample = sample
            self._changed.notify_all()
            while not (self.ended or self._is_interrupted or self.received_samples >= sample):
                if self._failure is not None:
                    raise self._failure
                await self._changed.wait()
            self._is_interrupted = False

    async def interrupt(self) -> None:
        """Make ``wait_for`` return, now or at its next call: there is something else to do."""
        async with self._changed:
            self._is_interrupted = True
            self._changed.notify_all()

    def read(self, start_sample: int, end_sample: int) -> bytes:
        """Return the frames of an interval that is still held."""
        if not self._start_sample <= start_sample <= end_sample <= self.received_samples:
            raise IndexError(
                f"[{start_sample}, {end_sample}) is not within "
                f"[{self._start_sample}, {self.received_samples})"
            )
        first = (start_sample - self._start_sample) * self._frame_bytes
        last = (end_sample - self._start_sample) * self._frame_bytes
        return bytes(memoryview(self._data)[first:last])

    def arrival_s(self, sample: int) -> float:
        """Return when the frame before ``sample`` arrived; if long ago, the earliest known time."""
        index = bisect.bisect_left(self._end_samples, sample)
        return self._arrivals_s[min(index, len(self._arrivals_s) - 1)]

    async def mark_worked(self, sample: int) -> None:
        """Note that audio before ``sample`` has been processed: the client may send more."""
        async with self._changed:
            self._worked_sample = sample
            self._changed.notify_all()

    def release_before(self, sample: int) -> None:
        del self._data[: (sample - self._start_sample) * self._frame_bytes]
        self._start_sample = sample
        while len(self._end_samples) > 1 and self._end_samples[0] < sample:
            self._end_samples.popleft()
            self._arrivals_s.popleft()
