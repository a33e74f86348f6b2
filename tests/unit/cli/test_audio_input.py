"""What raw audio cannot be is told; what it may be is left alone."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from earvoice.cli.audio_input import RawAudioCheck, container_of, sounds_like_two_channels
from earvoice.client.audio import AudioFormat
from earvoice.client.errors import AudioSourceError

RNG = np.random.default_rng(7)
SPEECH = np.convolve(RNG.normal(0, 3000, 64_000), np.ones(8) / 8, "same").astype("<i2")


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
        (b"\0\0\0\x20ftypM4A \0\0\0\0", "MP4"),
        (b"\x1aE\xdf\xa3\x01\0\0\0", "Matroska or WebM"),
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


def test_two_channels_are_told_from_one():
    """Interleaved channels jump between frames only; silence says nothing."""
    stereo = np.stack([SPEECH, SPEECH // 10 * 9 + 30], axis=1).reshape(-1)
    assert sounds_like_two_channels(stereo.tobytes())
    assert not sounds_like_two_channels(SPEECH.tobytes())
    assert not sounds_like_two_channels(bytes(64_000))
    assert not sounds_like_two_channels(b"")


class Told:
    """A check with its clock, and the lines that it told."""

    def __init__(self, *, paced: bool = True, **audio) -> None:
        self.lines: list[str] = []
        self.now_s = 10.0
        self.check = RawAudioCheck(
            AudioFormat(**audio), self.lines.append, paced=paced, now_s=lambda: self.now_s
        )

    def run(self, seconds: int, chunk: bytes) -> list[str]:
        for _ in range(seconds * 10):
            self.check.add(chunk)
            self.now_s += 0.1
        self.check.end()
        return self.lines


def test_a_recorder_at_another_rate_is_told_once():
    """48 kHz and two channels, read as 16 kHz and one: six times too fast."""
    (line,) = Told().run(20, bytes(48_000 * 4 // 10))
    assert line.startswith("6.1 s of audio come in a second at 16000 Hz and 1 channel(s)")


@pytest.mark.parametrize(
    ("chunk", "options"),
    [(bytes(3200), {}), (bytes(1600), {}), (bytes(32_000), {"paced": False})],
    ids=["a microphone", "one that pauses", "a file"],
)
def test_what_is_likely_is_not_told_of(chunk, options):
    assert Told(**options).run(20, chunk) == []


def test_two_channels_read_as_one_are_told_once():
    stereo = np.stack([SPEECH, SPEECH], axis=1).reshape(-1).tobytes()
    told = Told(paced=False).run(4, stereo[:6400])
    assert told == ["this sounds like two channels read as one: give --channels 2"]


def test_no_audio_is_an_error():
    with pytest.raises(AudioSourceError, match="ended before any audio came"):
        Told().check.end()


def test_a_container_is_an_error_that_says_what_to_do():
    with pytest.raises(AudioSourceError, match=r"is FLAC, not raw audio.*ffmpeg"):
        Told().check.add(encoded("FLAC"))
