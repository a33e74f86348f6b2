"""What raw audio cannot be is told; what it may be is left alone."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from earvoice.cli.audio_input import (
    check_channels,
    check_speed,
    container_of,
    open_text,
    sounds_like_two_channels,
)
from earvoice.client.audio import send_fast
from earvoice.encoder.text import read_words
from earvoice.runtime.audio_format import AudioFormat

RNG = np.random.default_rng(7)
SPEECH = np.convolve(RNG.normal(0, 3000, 64_000), np.ones(8) / 8, "same").astype("<i2")


# 23 bytes of AAC-LC at 44.1 kHz in one channel.
ADTS_FRAME = b"\xff\xf1\x50\x40\x02\xff\xfc" + bytes(16)


def encoded(kind: str, rate_hz: int = 16_000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, SPEECH, rate_hz, format=kind)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (encoded("WAV"), "WAV"),
        (encoded("FLAC"), "FLAC"),
        (encoded("OGG"), "Ogg"),
        (encoded("MP3"), "MP3"),
        (encoded("AIFF"), "AIFF"),
        (encoded("AU"), "AU"),
        (encoded("W64"), "W64"),
        (encoded("RF64"), "RF64"),
        (ADTS_FRAME * 2, "AAC"),
        (ADTS_FRAME, None),
        (b"\xff\xf1" * 2000, None),
        (b"\0\0\0\x20ftypM4A \0\0\0\0", "MP4"),
        (b"\x1aE\xdf\xa3\x01\0\0\0", "Matroska or WebM"),
        (b"FLV\x01\x05", "FLV"),
        ((b"G" + bytes(187)) * 4, "MPEG-TS"),
        ((b"G" + bytes(187)) * 3, None),
        (SPEECH.tobytes(), None),
        (bytes(4000), None),
        (b"\xff\xfb" * 2000, None),
        (b"", None),
    ],
)
def test_a_container_is_known_by_its_first_bytes(content, kind):
    """MP3 without a tag, too; loud or silent raw audio is none."""
    assert container_of(content[:2560]) == kind


@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 22_050, 32_000, 44_100, 48_000])
def test_mp3_of_any_rate_is_known(rate_hz):
    """All three versions of MPEG audio."""
    assert container_of(encoded("MP3", rate_hz)[:2560]) == "MP3"


async def test_a_text_may_begin_with_a_byte_order_mark(tmp_path):
    """As editors on Windows write it."""
    path = tmp_path / "talk.txt"
    path.write_text("Guten Tag", encoding="utf-8-sig")
    words = b"".join([chunk async for chunk in open_text(str(path)).chunks()])
    assert read_words(words) == ["Guten", "Tag"]


def test_two_channels_are_told_from_one():
    """Interleaved channels jump between frames only; silence says nothing."""
    stereo = np.stack([SPEECH, SPEECH // 10 * 9 + 30], axis=1).reshape(-1)
    assert sounds_like_two_channels(stereo.tobytes())
    assert not sounds_like_two_channels(SPEECH.tobytes())
    assert not sounds_like_two_channels(bytes(64_000))
    assert not sounds_like_two_channels(b"")


async def told_of_speed(seconds: int, chunk: bytes) -> list[str]:
    """What is told of a chunk that comes every tenth of a second."""
    lines: list[str] = []
    now_s = 10.0
    checked = check_speed(
        send_fast([chunk] * seconds * 10), AudioFormat(), lines.append, lambda: now_s
    )
    async for handed_on in checked:
        assert handed_on == chunk
        now_s += 0.1
    return lines


async def test_a_recorder_at_another_rate_is_told_once():
    """48 kHz and two channels, read as 16 kHz and one: six times too fast."""
    (line,) = await told_of_speed(20, bytes(48_000 * 4 // 10))
    assert line.startswith("6.1 s of audio come in a second at 16000 Hz and 1 channel(s)")


@pytest.mark.parametrize("chunk", [bytes(3200), bytes(1600)], ids=["a microphone", "with pauses"])
async def test_what_is_likely_is_not_told_of(chunk):
    assert await told_of_speed(20, chunk) == []


async def test_two_channels_read_as_one_are_told_once():
    lines: list[str] = []
    stereo = np.stack([SPEECH, SPEECH], axis=1).reshape(-1).tobytes()
    chunks = [stereo[:6400]] * 40
    checked = check_channels(send_fast(chunks), AudioFormat(), lines.append)
    assert [chunk async for chunk in checked] == chunks
    assert lines == ["this sounds like two channels read as one: give --channels 2"]
