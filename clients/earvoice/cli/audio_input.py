"""Where a command's audio comes from, and how fast."""

from __future__ import annotations

import sys
import time
from array import array
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from earvoice.cli.command import CommandError, ExitCode
from earvoice.client.audio import (
    FAST_CHUNK_MS,
    REALTIME_CHUNK_MS,
    AudioEncoding,
    AudioFormat,
    PcmStream,
    pace,
    send_fast,
)
from earvoice.client.errors import AudioSourceError

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Callable, Iterator

STANDARD_INPUT = "-"
CHANNEL_CHECK_MS = 2000
CHANNEL_LIKENESS = 0.4
AUDIBLE = 20
"""Mean step between samples, of 32768, under which nothing is said of the channels."""
SPEED_CHECK_S = 5.0
HIGHEST_SPEED = 1.5
_CONTAINERS = (
    (b"RIFF", 0, "WAV"),
    (b"fLaC", 0, "FLAC"),
    (b"OggS", 0, "Ogg"),
    (b"ID3", 0, "MP3"),
    (b"ftyp", 4, "MP4"),
    (b"\x1aE\xdf\xa3", 0, "Matroska or WebM"),
    (b"FORM", 0, "AIFF"),
    (b"caff", 0, "CAF"),
)
_MP3_SYNC_AND_LAYER = (0x7FF, 1)
_MPEG_2_5, _MPEG_2, _MPEG_1 = 0, 2, 3
_MPEG_1_RATES_HZ = (44_100, 48_000, 32_000)
_RATE_DIVISOR = {_MPEG_1: 1, _MPEG_2: 2, _MPEG_2_5: 4}
_MP3_RATES_KBPS = {
    _MPEG_1: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    **dict.fromkeys(
        (_MPEG_2, _MPEG_2_5), (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
    ),
}
Speed = Literal["realtime", "fast"]


@dataclass(frozen=True)
class AudioInput:
    """A source of one stream.

    Attributes:
        paced: whether it yields audio as it comes into being.
        stop: ends the audio now; None where it ends by itself.
    """

    name: str
    audio: AudioFormat
    duration_ms: float | None
    paced: bool
    chunks: Callable[[], AsyncIterator[bytes]]
    stop: Callable[[], None] | None = None


@contextmanager
def open_recording(path: Path, speed: Speed) -> Iterator[AudioInput]:
    # Only recordings need the libraries of the extra "cli".
    from earvoice.client.audio_file import AudioFile  # noqa: PLC0415

    with AudioFile(path) as file:

        def chunks() -> AsyncIterator[bytes]:
            if speed == "realtime":
                return pace(file.chunks(REALTIME_CHUNK_MS), file.audio)
            return send_fast(file.chunks(FAST_CHUNK_MS))

        yield AudioInput(str(path), file.audio, file.duration_ms, speed == "realtime", chunks)


def read_standard_input(
    audio: AudioFormat, speed: Speed, tell: Callable[[str], None]
) -> AudioInput:
    """Return raw audio from standard input, as it comes: whoever writes it paces it.

    Its ``chunks`` raise AudioSourceError where there is none, or a container; ``tell`` gets a line
    about audio that is not likely what it was said to be.
    """
    stream = PcmStream(sys.stdin.buffer, audio)
    paced = speed == "realtime"

    async def chunks() -> AsyncIterator[bytes]:
        check = RawAudioCheck(audio, tell, paced=paced)
        async for chunk in stream.chunks(REALTIME_CHUNK_MS if paced else FAST_CHUNK_MS):
            check.add(chunk)
            yield chunk
        check.end()

    return AudioInput(STANDARD_INPUT, audio, None, paced, chunks, stream.stop)


class RawAudioCheck:
    """Looks at raw audio for what it cannot be, and tells of each at most once.

    Args:
        paced: the audio is said to come from a microphone.
    """

    def __init__(
        self,
        audio: AudioFormat,
        tell: Callable[[str], None],
        *,
        paced: bool,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._audio = audio
        self._tell = tell
        self._now_s = now_s
        self._begin_s = 0.0
        self._received_bytes = 0
        self._head: bytes | None = b""
        self._checks_speed = paced

    def add(self, chunk: bytes) -> None:
        """Look at the next audio."""
        if not self._received_bytes:
            self._begin_s = self._now_s()
            if kind := container_of(chunk):
                raise AudioSourceError(
                    f"standard input is {kind}, not raw audio: give the file's name, or decode it "
                    "first (ffmpeg -i pipe: -f s16le -ac 1 -ar 16000 pipe: | ...)"
                )
        self._received_bytes += len(chunk)
        self._check_channels(chunk)
        self._check_speed()

    def end(self) -> None:
        if not self._received_bytes:
            raise AudioSourceError("standard input ended before any audio came")

    def _check_channels(self, chunk: bytes) -> None:
        if self._head is None:
            return
        self._head += chunk
        if self._audio.duration_ms(len(self._head)) < CHANNEL_CHECK_MS:
            return
        is_mono = self._audio.channel_count == 1 and self._audio.encoding == "linear16"
        if is_mono and sounds_like_two_channels(self._head):
            self._tell("this sounds like two channels read as one: give --channels 2")
        self._head = None

    def _check_speed(self) -> None:
        elapsed_s = self._now_s() - self._begin_s
        if not self._checks_speed or elapsed_s < SPEED_CHECK_S:
            return
        self._checks_speed = False
        speed = self._audio.duration_ms(self._received_bytes) / 1000 / elapsed_s
        if speed > HIGHEST_SPEED:
            self._tell(
                f"{speed:.1f} s of audio come in a second at {self._audio.sample_rate_hz} Hz and "
                f"{self._audio.channel_count} channel(s): give the recorder's own --rate and "
                "--channels, or --fast for a file"
            )


def container_of(head: bytes) -> str | None:
    """Return what kind of file begins like this; None for what may be raw audio."""
    for magic, offset, kind in _CONTAINERS:
        if head[offset : offset + len(magic)] == magic:
            return kind
    return "MP3" if _is_mp3(head) else None


def _is_mp3(head: bytes) -> bool:
    """Look for two frames of MPEG audio, layer III: a single header may be raw audio as well."""
    place = 0
    for _ in range(2):
        header = int.from_bytes(head[place : place + 4], "big")
        sync, version, layer = header >> 21, header >> 19 & 3, header >> 17 & 3
        bitrate, rate, padding = header >> 12 & 15, header >> 10 & 3, header >> 9 & 1
        rates_kbps = _MP3_RATES_KBPS.get(version, ())
        known = 0 < bitrate < len(rates_kbps) and rate < len(_MPEG_1_RATES_HZ)
        if (sync, layer) != _MP3_SYNC_AND_LAYER or not known:
            return False
        rate_hz = _MPEG_1_RATES_HZ[rate] // _RATE_DIVISOR[version]
        frame_samples = 1152 if version == _MPEG_1 else 576
        place += frame_samples // 8 * 1000 * rates_kbps[bitrate] // rate_hz + padding
    return True


def sounds_like_two_channels(linear16: bytes) -> bool:
    """Say whether every second sample is much nearer to the one before than the others are."""
    samples = array("h", linear16[: len(linear16) - len(linear16) % 4])
    if sys.byteorder == "big":
        samples.byteswap()
    within = sum(abs(right - left) for left, right in zip(samples[::2], samples[1::2], strict=True))
    between = sum(
        abs(left - right) for right, left in zip(samples[1::2], samples[2::2], strict=False)
    )
    return between > AUDIBLE * len(samples) and within < CHANNEL_LIKENESS * between


def add_audio_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        metavar="FILE",
        nargs="+",
        help="recordings (WAV, FLAC, ...), or - for raw audio from standard input",
    )
    speed = parser.add_mutually_exclusive_group()
    for name, meaning in (
        ("realtime", "send as if spoken now (the default for -)"),
        ("fast", "send at full speed (the default for recordings)"),
    ):
        speed.add_argument(
            f"--{name}", dest="speed", action="store_const", const=name, default=None, help=meaning
        )
    raw = parser.add_argument_group("raw audio (-)")
    standard = AudioFormat()
    raw.add_argument(
        "--rate", type=int, default=standard.sample_rate_hz, help="frames per second (%(default)s)"
    )
    raw.add_argument(
        "--channels", type=int, default=standard.channel_count, help="1 or 2 (%(default)s)"
    )
    raw.add_argument(
        "--encoding",
        choices=get_args(AudioEncoding),
        default=standard.encoding,
        help="(%(default)s)",
    )


@contextmanager
def open_input(
    source: str, options: argparse.Namespace, tell: Callable[[str], None] = print
) -> Iterator[AudioInput]:
    """Open a source for one translation; ``tell`` gets a line about audio that is not likely."""
    if source != STANDARD_INPUT:
        with open_recording(Path(source), options.speed or "fast") as recording:
            yield recording
        return
    if sys.stdin is None:
        raise CommandError("- reads raw audio, but standard input is closed", ExitCode.INPUT)
    if sys.stdin.isatty():
        raise CommandError(
            "- reads raw audio, but standard input is a terminal: pipe audio into it"
        )
    try:
        audio = AudioFormat(options.encoding, options.rate, options.channels)
    except ValueError as error:
        raise CommandError(str(error)) from error
    yield read_standard_input(audio, options.speed or "realtime", tell)
