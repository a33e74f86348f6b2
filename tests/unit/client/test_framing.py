"""Bytes as messages of whole frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.client.audio_format import AudioFormat
from earvoice.client.errors import AudioSourceError
from earvoice.client.framing import FrameCutter

STEREO = AudioFormat("linear16", 16_000, 2)


@given(st.lists(st.binary(max_size=23)))
def test_cutting_keeps_every_whole_frame(chunks):
    """However bytes come, the messages join to them, hold whole frames and are short enough."""
    cutter = FrameCutter(STEREO, limit_bytes=10)
    messages = [message for chunk in chunks for message in cutter.add(chunk)]
    joined = b"".join(chunks)
    whole_bytes = len(joined) - len(joined) % 4
    assert b"".join(messages) == joined[:whole_bytes]
    assert all(message and len(message) % 4 == 0 and len(message) <= 8 for message in messages)


def test_an_unfinished_frame_is_told_at_the_end():
    """Audio that ends inside a frame was cut or declared wrongly."""
    cutter = FrameCutter(STEREO)
    list(cutter.add(b"12345"))
    with pytest.raises(AudioSourceError, match="ends inside a frame: 1 of 4 bytes"):
        cutter.check_end()


def test_whole_frames_may_end():
    """Nothing is left over."""
    cutter = FrameCutter(STEREO)
    assert list(cutter.add(b"12345678")) == [b"12345678"]
    cutter.check_end()
