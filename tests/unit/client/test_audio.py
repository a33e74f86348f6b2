"""The format of audio, its pace, and raw audio from pipes and files."""

import os

import pytest

from earvoice.client.audio import ByteStream, pace, send_fast, whole_frames
from earvoice.runtime.audio_format import WORDS, AudioFormat


@pytest.mark.parametrize(
    ("audio", "frame_bytes"),
    [
        (AudioFormat(), 2),
        (AudioFormat("linear16", 44_100, 2), 4),
        (AudioFormat("float32", 8_000, 2), 8),
        (AudioFormat("mulaw", 8_000), 1),
        (WORDS, 64),
    ],
)
def test_frame_size(audio, frame_bytes):
    """A frame is a sample of every channel."""
    assert audio.frame_bytes == frame_bytes
    assert audio.duration_ms(frame_bytes * audio.sample_rate_hz) == 1000.0
    assert audio.position_ms(audio.sample_rate_hz // 2) == 500.0


def test_a_chunk_is_never_empty():
    """Even a chunk of no milliseconds holds a frame."""
    assert AudioFormat().chunk_bytes(80) == 2560
    assert AudioFormat().chunk_bytes(0) == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("mp3", 16_000, 1), "encoding = 'mp3' is not allowed; allowed: linear16"),
        (("linear16", 0, 1), "sample_rate_hz = 0 is not allowed; allowed: 8000 to 48000"),
        (("linear16", 16_000, 3), "channel_count = 3 is not allowed; allowed: 1 to 2"),
        (("words", 8_000, 1), "sample_rate_hz = 8000 is not allowed; allowed: 4 to 4"),
        (("words", 4, 2), "channel_count = 2 is not allowed; allowed: 1 to 1"),
    ],
)
def test_a_format_that_no_server_takes_is_refused(values, message):
    """The message names the field, its value and what is allowed."""
    with pytest.raises(ValueError, match=message):
        AudioFormat(*values)


AUDIO = AudioFormat("linear16", 8_000, 1)
CHUNK = bytes(AUDIO.chunk_bytes(80))


class SteppedClock:
    """A clock that only moves when it is slept on or pushed."""

    def __init__(self):
        self.time_s = 100.0

    def now_s(self):
        return self.time_s

    async def sleep_s(self, duration_s):
        self.time_s += duration_s


async def test_a_chunk_leaves_when_its_last_sample_exists():
    """Chunk i of 80 ms leaves 80 (i + 1) ms after the first sample, a short one earlier."""
    clock = SteppedClock()
    chunks = [CHUNK, CHUNK, CHUNK[:320]]
    times = [clock.time_s - 100.0 async for _ in pace(chunks, AUDIO, clock.now_s, clock.sleep_s)]
    assert times == pytest.approx([0.08, 0.16, 0.18])


async def test_a_late_consumer_is_caught_up():
    """Chunks that are overdue leave at once, and the grid stays where it was."""
    clock = SteppedClock()
    times = []
    async for _ in pace([CHUNK] * 4, AUDIO, clock.now_s, clock.sleep_s):
        times.append(clock.time_s - 100.0)
        if len(times) == 1:
            clock.time_s += 0.2
    assert times == pytest.approx([0.08, 0.28, 0.28, 0.32])


async def test_audio_that_comes_by_itself_is_paced_as_well():
    """What is decoded while it is sent keeps the grid."""
    clock = SteppedClock()
    chunks = send_fast([CHUNK, CHUNK])
    times = [clock.time_s - 100.0 async for _ in pace(chunks, AUDIO, clock.now_s, clock.sleep_s)]
    assert times == pytest.approx([0.08, 0.16])


async def test_full_speed_keeps_every_chunk():
    """Nothing is waited for and nothing is lost."""
    assert [chunk async for chunk in send_fast([b"1", b"2"])] == [b"1", b"2"]


async def test_a_regular_file_is_read_in_chunks(tmp_path):
    """Redirected files work as well as pipes."""
    path = tmp_path / "audio.raw"
    path.write_bytes(bytes(range(200)) * 10)
    with path.open("rb") as source:
        chunks = [block async for block in ByteStream(source).blocks(800)]
    assert b"".join(chunks) == path.read_bytes()
    assert {len(chunk) for chunk in chunks} == {800, 400}


async def test_a_pipe_is_cut_at_frames(caplog):
    """Frames that come in two writes are joined; an unfinished one at the end is dropped aloud."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source:
        stream = whole_frames(ByteStream(source).blocks(1280), AUDIO)
        os.write(writing, b"123")
        assert await anext(stream) == b"12"
        os.write(writing, b"45")
        os.close(writing)
        assert [chunk async for chunk in stream] == [b"34"]
    assert "dropped 1 bytes" in caplog.text


async def test_stopping_ends_an_open_pipe():
    """A microphone that would go on for ever is ended from outside."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source:
        bytes_as_they_come = ByteStream(source)
        stream = bytes_as_they_come.blocks(1280)
        os.write(writing, b"12")
        assert await anext(stream) == b"12"
        bytes_as_they_come.stop()
        assert [chunk async for chunk in stream] == []
    os.close(writing)
