"""Sizes and durations of audio."""

import pytest

from earvoice.client.audio_format import AudioFormat


@pytest.mark.parametrize(
    ("audio", "frame_bytes"),
    [
        (AudioFormat(), 2),
        (AudioFormat("linear16", 44_100, 2), 4),
        (AudioFormat("float32", 8_000, 2), 8),
        (AudioFormat("mulaw", 8_000), 1),
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
    ],
)
def test_a_format_that_no_server_takes_is_refused(values, message):
    """The message names the field, its value and what is allowed."""
    with pytest.raises(ValueError, match=message):
        AudioFormat(*values)
