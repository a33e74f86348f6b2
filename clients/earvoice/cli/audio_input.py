"""Where a command's audio comes from, and how fast."""

from __future__ import annotations

import argparse
import io
import os
import stat
import sys
import time
from array import array
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TextIO, get_args

from earvoice.cli.command import CommandError, ExitCode
from earvoice.client.audio import (
    FAST_CHUNK_MS,
    REALTIME_CHUNK_MS,
    ByteStream,
    pace,
    send_fast,
    whole_frames,
)
from earvoice.client.errors import AudioSourceError
from earvoice.client.ffmpeg import FfmpegAudio, find_program, is_address, probe_file
from earvoice.client.text import duration_ms as text_duration_ms
from earvoice.client.text import words_as_they_come, write_words
from earvoice.runtime.audio_format import WORDS, AudioFormat, SoundEncoding

STANDARD_INPUT = "-"
_HEAD_BYTES = 4096
_JUDGED_BYTES = 1445
"""The longest frame of MP3 and the next one's header; 45 ms of raw audio."""
CHANNEL_CHECK_MS = 2000
CHANNEL_LIKENESS = 0.4
AUDIBLE = 20
"""Mean step between samples, of 32768, below which the channels are not judged."""
SPEED_CHECK_S = 5.0
HIGHEST_SPEED = 1.5
_CONTAINERS = (
    (b"RIFF", 0, "WAV"),
    (b"RF64", 0, "RF64"),
    (b"riff\x2e\x91\xcf\x11", 0, "W64"),
    (b".snd", 0, "AU"),
    (b"fLaC", 0, "FLAC"),
    (b"OggS", 0, "Ogg"),
    (b"ID3", 0, "MP3"),
    (b"ftyp", 4, "MP4"),
    (b"\x1aE\xdf\xa3", 0, "Matroska or WebM"),
    (b"FORM", 0, "AIFF"),
    (b"caff", 0, "CAF"),
    (b"FLV\x01", 0, "FLV"),
)
_TS_SYNC, _TS_PACKET_BYTES, _TS_PACKETS = 0x47, 188, 4
_ADTS_BEGINS = (b"\xff\xf0", b"\xff\xf1", b"\xff\xf8", b"\xff\xf9")
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
    """The audio of one stream.

    Attributes:
        paced: whether it yields audio in real time.
        stop: ends the audio now; None if it ends by itself.
    """

    name: str
    audio: AudioFormat
    duration_ms: float | None
    paced: bool
    chunks: Callable[[], AsyncIterator[bytes]]
    stop: Callable[[], None] | None = None


@contextmanager
def open_recording(path: Path, speed: Speed) -> Iterator[AudioInput]:
    """Open a recording; what libsndfile does not read is read by the installed ffmpeg."""
    try:
        # Only recordings need the libraries of the extra "cli".
        from earvoice.client.audio_file import AudioFile, UnknownFormatError  # noqa: PLC0415
    except ImportError as error:
        raise CommandError(str(error)) from error

    paced = speed == "realtime"
    with ExitStack() as stack:
        try:
            file = stack.enter_context(AudioFile(path))
            audio = file.audio
            duration_ms: float | None = file.duration_ms
            read: Callable[[int], Iterable[bytes] | AsyncIterable[bytes]] = file.chunks
        except UnknownFormatError:
            audio, duration_ms = AudioFormat(), probe_file(str(path))
            read = FfmpegAudio(f"file:{path}", audio, str(path)).chunks

        def chunks() -> AsyncIterator[bytes]:
            blocks = read(REALTIME_CHUNK_MS if paced else FAST_CHUNK_MS)
            return pace(blocks, audio) if paced else send_fast(blocks)

        yield AudioInput(str(path), audio, duration_ms, paced, chunks)


def open_address(address: str, speed: Speed, tell: Callable[[str], None]) -> AudioInput:
    """Return the sound at an address, as it comes: its sender paces it."""
    source = FfmpegAudio(address, AudioFormat(), address)
    return _as_it_comes(address, AudioFormat(), speed, tell, source.chunks, source.stop)


def read_standard_input(
    audio: AudioFormat, speed: Speed, tell: Callable[[str], None]
) -> AudioInput:
    """Return the audio of standard input, as it comes: its writer paces it.

    Args:
        audio: format of raw audio, and the format that a container is decoded to.
        speed: ``realtime`` for a microphone.
        tell: gets a line if the audio's format is probably not the one given.
    """
    stream = ByteStream(sys.stdin.buffer)

    async def chunks(chunk_ms: int) -> AsyncIterator[bytes]:
        blocks = stream.blocks(audio.chunk_bytes(chunk_ms))
        head = b""
        # A writer may give a container's first bytes one by one.
        while (kind := container_of(head)) is None and len(head) < _JUDGED_BYTES:
            if not (block := await anext(blocks, b"")):
                break
            head += block
        everything = _after(head, blocks)
        if kind is None:
            async for chunk in check_channels(whole_frames(everything, audio), audio, tell):
                yield chunk
        else:
            decoded = FfmpegAudio(everything, audio, f"standard input ({kind})")
            async for chunk in decoded.chunks(chunk_ms):
                yield chunk

    return _as_it_comes("standard input", audio, speed, tell, chunks, stream.stop)


def _as_it_comes(
    name: str,
    audio: AudioFormat,
    speed: Speed,
    tell: Callable[[str], None],
    read: Callable[[int], AsyncIterator[bytes]],
    stop: Callable[[], None],
) -> AudioInput:
    """Return audio that its sender paces; ``chunks`` raises AudioSourceError if none comes."""
    paced = speed == "realtime"

    async def chunks() -> AsyncIterator[bytes]:
        is_empty = True
        source = read(REALTIME_CHUNK_MS if paced else FAST_CHUNK_MS)
        async for chunk in check_speed(source, audio, tell) if paced else source:
            is_empty = False
            yield chunk
        if is_empty:
            raise AudioSourceError(f"{name} ended before any audio came")

    shown = STANDARD_INPUT if name == "standard input" else name
    return AudioInput(shown, audio, None, paced, chunks, stop)


def open_text(source: str) -> AudioInput:
    """Return the words of a text: a file's all at once, those of standard input as they come."""
    if source != STANDARD_INPUT:
        try:
            text = Path(source).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise AudioSourceError(f"{source} cannot be read as text: {error}") from error
        words = write_words(text)
        size = WORDS.chunk_bytes(FAST_CHUNK_MS)
        blocks = [words[start : start + size] for start in range(0, len(words), size)]
        length_ms = text_duration_ms(text)
        return AudioInput(source, WORDS, length_ms, paced=False, chunks=lambda: send_fast(blocks))
    stream = ByteStream(sys.stdin.buffer)

    def read(_: int) -> AsyncIterator[bytes]:
        return words_as_they_come(stream.blocks(_HEAD_BYTES))

    return _as_it_comes("standard input", WORDS, "fast", print, read, stream.stop)


async def _after(head: bytes, blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if head:
        yield head
    async for block in blocks:
        yield block


async def check_speed(
    chunks: AsyncIterator[bytes],
    audio: AudioFormat,
    tell: Callable[[str], None],
    now_s: Callable[[], float] = time.monotonic,
) -> AsyncIterator[bytes]:
    """Pass audio on; say once if it comes faster than real time."""
    begin_s: float | None = None
    received_bytes, is_checked = 0, False
    async for chunk in chunks:
        begin_s = now_s() if begin_s is None else begin_s
        received_bytes += len(chunk)
        elapsed_s = now_s() - begin_s
        if not is_checked and elapsed_s >= SPEED_CHECK_S:
            is_checked = True
            speed = audio.duration_ms(received_bytes) / 1000 / elapsed_s
            if speed > HIGHEST_SPEED:
                tell(
                    f"{speed:.1f} s of audio come in a second at {audio.sample_rate_hz} Hz and "
                    f"{audio.channel_count} channel(s): use --fast for a recording; for raw "
                    "audio give the recorder's --rate and --channels"
                )
        yield chunk


async def check_channels(
    chunks: AsyncIterator[bytes], audio: AudioFormat, tell: Callable[[str], None]
) -> AsyncIterator[bytes]:
    """Pass raw audio on; say once if it sounds like two channels read as one."""
    is_mono = audio.channel_count == 1 and audio.encoding == "linear16"
    head: bytes | None = b"" if is_mono else None
    async for chunk in chunks:
        if head is not None:
            head += chunk
            if audio.duration_ms(len(head)) >= CHANNEL_CHECK_MS:
                if sounds_like_two_channels(head):
                    tell("this sounds like two channels read as one: give --channels 2")
                head = None
        yield chunk


def container_of(head: bytes) -> str | None:
    """Return what kind of file begins like this; None for what may be raw audio."""
    for magic, offset, kind in _CONTAINERS:
        if head[offset : offset + len(magic)] == magic:
            return kind
    places = range(0, _TS_PACKETS * _TS_PACKET_BYTES, _TS_PACKET_BYTES)
    if len(head) > places[-1] and all(head[place] == _TS_SYNC for place in places):
        return "MPEG-TS"
    if _is_adts(head):
        return "AAC"
    return "MP3" if _is_mp3(head) else None


def _is_adts(head: bytes) -> bool:
    """Look for two frames of AAC with the same fixed header."""
    frame_bytes = int.from_bytes(head[3:6], "big") >> 5 & 0x1FFF
    next_header = head[frame_bytes : frame_bytes + 3]
    return head[:2] in _ADTS_BEGINS and frame_bytes > 0 and next_header == head[:3]


def _is_mp3(head: bytes) -> bool:
    """Look for two frames of MPEG audio, layer III: a single header may also occur in raw audio."""
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
    """Say whether every second sample is much closer to its predecessor than the others are."""
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
        help="recordings (WAV, FLAC, MP3, Ogg), what an installed ffmpeg reads (MP4, MKV, WebM; "
        "addresses such as rtmp://, srt://, rtsp://, https://), or - for standard input: raw audio "
        "or a recording",
    )
    parser.add_argument(
        "--text",
        action="store_true",
        help="the sources are text, a sentence a line, for a model that reads words; - is read as "
        "it comes",
    )
    speed = parser.add_mutually_exclusive_group()
    for name, meaning in (
        ("realtime", "send as if spoken now (the default for addresses and -)"),
        ("fast", "send at full speed (the default for recordings)"),
    ):
        speed.add_argument(
            f"--{name}", dest="speed", action="store_const", const=name, default=None, help=meaning
        )
    raw = parser.add_argument_group("raw audio from standard input")
    standard = AudioFormat()
    raw.add_argument(
        "--rate", type=int, default=standard.sample_rate_hz, help="frames per second (%(default)s)"
    )
    raw.add_argument(
        "--channels", type=int, default=standard.channel_count, help="1 or 2 (%(default)s)"
    )
    raw.add_argument(
        "--encoding",
        choices=get_args(SoundEncoding),
        default=standard.encoding,
        help="(%(default)s)",
    )


def _recording_behind(stream: TextIO) -> Path | None:
    """Return the whole recording that a stream reads, as with `- < talk.m4a`, if any."""
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:
        return None  # a stand-in, such as a test's
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or os.lseek(descriptor, 0, os.SEEK_CUR):
        return None
    path = Path("/dev/fd", str(descriptor)).resolve()
    if path.is_relative_to("/dev") or not path.is_file() or path.stat().st_ino != status.st_ino:
        return None  # it no longer has a name, or the system does not give it
    return path if container_of(os.pread(descriptor, _HEAD_BYTES, 0)) else None


@contextmanager
def open_input(
    source: str, options: argparse.Namespace, tell: Callable[[str], None] = print
) -> Iterator[AudioInput]:
    """Open a source for one translation; ``tell`` gets a line if its format is probably wrong.

    Raises:
        AudioSourceError: a recording cannot be read.
        CommandError: the format of raw audio is not allowed, or the source makes no sense.
    """
    if not source:
        raise CommandError("FILE = '' is not allowed; allowed: a recording, an address, -")
    if source == STANDARD_INPUT and sys.stdin is None:
        raise CommandError("- cannot be read: standard input is closed", ExitCode.INPUT)
    if options.text:
        if options.speed == "realtime":
            raise CommandError("--text has no pace: --realtime cannot be used with it")
        yield open_text(source)
        return
    if is_address(source):
        find_program("ffmpeg", source)  # before any service is started
        yield open_address(source, options.speed or "realtime", tell)
        return
    if source != STANDARD_INPUT:
        with open_recording(Path(source), options.speed or "fast") as recording:
            yield recording
        return
    if sys.stdin.isatty():
        raise CommandError("- reads audio, but standard input is a terminal: pipe audio into it")
    try:
        audio = AudioFormat(options.encoding, options.rate, options.channels)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if path := _recording_behind(sys.stdin):
        with open_recording(path, options.speed or "fast") as recording:
            yield replace(recording, name=STANDARD_INPUT)
        return
    yield read_standard_input(audio, options.speed or "realtime", tell)
