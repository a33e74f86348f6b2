"""When chunks are sent."""

import pytest

from earvoice.client.audio_format import AudioFormat
from earvoice.client.pacing import pace, send_fast

AUDIO = AudioFormat("linear16", 8_000, 1)
CHUNK = bytes(AUDIO.chunk_bytes(80))


class SteppedClock:
    """A clock that only moves when it is slept on or pushed."""

    def __init__(self):
        self.time_s = 100.0

    def now_s(self):
        """Return the time."""
        return self.time_s

    async def sleep_s(self, duration_s):
        """Move on."""
        self.time_s += duration_s


async def test_a_chunk_leaves_when_its_last_sample_exists():
    """Chunk i of 80 ms leaves 80 (i + 1) ms after the first sample, a short one earlier."""
    clock = SteppedClock()
    chunks = [CHUNK, CHUNK, CHUNK[:320]]
    times = [clock.time_s - 100.0 async for _ in pace(chunks, AUDIO, clock)]
    assert times == pytest.approx([0.08, 0.16, 0.18])


async def test_a_late_consumer_is_caught_up():
    """Chunks that are overdue leave at once, and the grid stays where it was."""
    clock = SteppedClock()
    times = []
    async for _ in pace([CHUNK] * 4, AUDIO, clock):
        times.append(clock.time_s - 100.0)
        if len(times) == 1:
            clock.time_s += 0.2
    assert times == pytest.approx([0.08, 0.28, 0.28, 0.32])


async def test_full_speed_keeps_every_chunk():
    """Nothing is waited for and nothing is lost."""
    assert [chunk async for chunk in send_fast([b"1", b"2"])] == [b"1", b"2"]
