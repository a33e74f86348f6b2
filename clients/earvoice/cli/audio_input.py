"""Where a command's audio comes from, and how fast."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from earvoice.cli.command import CommandError
from earvoice.client.audio_format import AudioEncoding, AudioFormat
from earvoice.client.pacing import FAST_CHUNK_MS, REALTIME_CHUNK_MS, pace, send_fast
from earvoice.client.pcm_stream import PcmStream

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Iterator

STANDARD_INPUT = "-"
Speed = Literal["realtime", "fast"]


class AudioInput(Protocol):
    """A source of one stream.

    Attributes:
        name: for people and for the ``file`` of JSON lines.
        audio: format of its bytes.
        duration_ms: its length; None when nobody knows.
        paced: whether it yields audio as it comes into being.
    """

    name: str
    audio: AudioFormat
    duration_ms: float | None
    paced: bool

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the audio."""


class RecordingInput:
    """A recording, at real time or at full speed.

    Args:
        path: the file.
        speed: how fast.

    Raises:
        AudioSourceError: it cannot be read.
    """

    def __init__(self, path: Path, speed: Speed) -> None:
        # Only recordings need the libraries of the extra "cli".
        from earvoice.client.audio_file import AudioFile  # noqa: PLC0415

        self._file = AudioFile(path)
        self.name = str(path)
        self.audio = self._file.audio
        self.duration_ms: float | None = self._file.duration_ms
        self.paced = speed == "realtime"

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the recording."""
        if self.paced:
            return pace(self._file.chunks(REALTIME_CHUNK_MS), self.audio)
        return send_fast(self._file.chunks(FAST_CHUNK_MS))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class StandardInput:
    """Raw audio from standard input, as it comes: whoever writes it paces it.

    Args:
        audio: what the bytes are.
        paced: whether the writer is a microphone, or a file at full speed.
    """

    def __init__(self, audio: AudioFormat, *, paced: bool) -> None:
        self._stream = PcmStream(sys.stdin.buffer, audio)
        self.name = STANDARD_INPUT
        self.audio = audio
        self.duration_ms: float | None = None
        self.paced = paced

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the audio."""
        return self._stream.chunks(REALTIME_CHUNK_MS if self.paced else FAST_CHUNK_MS)

    def stop(self) -> None:
        """End the audio now."""
        self._stream.stop()


def add_audio_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sources, their speed, and what raw audio is."""
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
def open_input(source: str, options: argparse.Namespace) -> Iterator[AudioInput]:
    """Open a source for one translation.

    Raises:
        AudioSourceError: a recording cannot be read.
        CommandError: the format of raw audio is not allowed, or nobody can have meant it.
    """
    if source != STANDARD_INPUT:
        recording = RecordingInput(Path(source), options.speed or "fast")
        try:
            yield recording
        finally:
            recording.close()
        return
    if sys.stdin.isatty():
        raise CommandError(
            "- reads raw audio, but standard input is a terminal: pipe audio into it"
        )
    try:
        audio = AudioFormat(options.encoding, options.rate, options.channels)
    except ValueError as error:
        raise CommandError(str(error)) from error
    yield StandardInput(audio, paced=options.speed != "fast")
