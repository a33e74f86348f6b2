"""Recordings: WAV, FLAC and whatever else libsndfile reads, of any rate and channel count.

One or two channels at 8 to 48 kHz are passed on as they are, 16-bit recordings as LINEAR16 and all
others as FLOAT32; more channels are mixed to one, other rates are resampled to 16 kHz (FLOAT32).
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from earvoice.client.errors import AudioSourceError
from earvoice.runtime.audio_format import CHANNEL_LIMIT, SAMPLE_RATE_RANGE_HZ, AudioFormat

try:
    import numpy as np
    import soundfile
    import soxr
except ImportError as error:
    raise ImportError(
        f"reading recordings needs {error.name}: install earvoice[cli]", name=error.name
    ) from error

RESAMPLED_RATE_HZ = 16_000
# libsndfile's codes: unrecognised format, unsupported encoding.
_UNKNOWN_FORMAT_CODES = (1, 4)
_UNKNOWN_FRAMES = 2**63 - 1
"""Its SF_COUNT_MAX, of FLAC that was written into a pipe."""
_EMPTY_BYTES = 4096
"""A recording without frames that is longer than this was not closed by its recorder."""
_OGG_STREAM_BEGIN = b"OggS\0\x02"
_CUT_WAV = re.compile(r"^data : (\d+) \(should be (\d+)\)$", re.MULTILINE)
"""What libsndfile's log says of a WAV file that ends too early; it reports no error."""
_LEAST_UNKNOWN_BYTES = 0x7FFF_0000
"""Programs that write into a pipe put this size, or a larger one, into the header."""


class UnknownFormatError(AudioSourceError):
    """A file that libsndfile does not know, or would not read to its end; ffmpeg may."""


class AudioFile:
    """An open recording; ``audio`` is the format of the bytes that ``chunks`` yields."""

    def __init__(self, path: Path) -> None:
        try:
            is_file = path.is_file()
        except OSError as error:  # a name that is too long, a folder that may not be searched
            raise AudioSourceError(f"{path}: {error.strerror}") from error
        if not is_file:
            fault = "no such file"
            if path.is_dir():
                fault = "is a folder; allowed: a recording"
            elif path.exists():
                fault = "is not a regular file; `earvoice translate -` reads pipes"
            raise AudioSourceError(f"{path}: {fault}")
        try:
            self._file = soundfile.SoundFile(path)
        except (soundfile.LibsndfileError, OSError, TypeError) as error:
            unknown = getattr(error, "code", None) in _UNKNOWN_FORMAT_CODES
            kind = UnknownFormatError if unknown else AudioSourceError
            raise kind(f"{path} cannot be read as a recording: {error}") from error
        if cause := _why_cut_short(self._file, path):
            self.close()
            raise UnknownFormatError(f"{path} cannot be read as a recording: {cause}")
        self._path = path
        self.recorded_rate_hz: int = self._file.samplerate
        self.recorded_channels: int = self._file.channels
        self.duration_ms: float = 1000 * self._file.frames / self.recorded_rate_hz
        low, high = SAMPLE_RATE_RANGE_HZ
        self._resampled = not low <= self.recorded_rate_hz <= high
        self._mixed = self.recorded_channels > CHANNEL_LIMIT
        exact = self._file.subtype == "PCM_16" and not self._resampled and not self._mixed
        self.audio = AudioFormat(
            "linear16" if exact else "float32",
            RESAMPLED_RATE_HZ if self._resampled else self.recorded_rate_hz,
            1 if self._mixed else self.recorded_channels,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def chunks(self, chunk_ms: int) -> Iterator[bytes]:
        """Yield about ``chunk_ms`` of sound at a time.

        Raises:
            AudioSourceError: the recording is damaged or cut short; what there is came before.
        """
        try:
            yield from self._decoded(chunk_ms)
        except soundfile.LibsndfileError as error:
            raise AudioSourceError(f"{self._path} is damaged: {error}") from error
        if missing := _CUT_WAV.search(self._file.extra_info):
            told, found = map(int, missing.groups())
            if found < told < _LEAST_UNKNOWN_BYTES:
                raise AudioSourceError(
                    f"{self._path} is damaged: it has {found} of the {told} bytes of sound that "
                    "its header tells of"
                )

    def _decoded(self, chunk_ms: int) -> Iterator[bytes]:
        self._file.seek(0)
        dtype = "int16" if self.audio.encoding == "linear16" else "float32"
        resampler = self._open_resampler()
        block_frames = max(1, self.recorded_rate_hz * chunk_ms // 1000)
        while len(block := self._file.read(block_frames, dtype=dtype, always_2d=True)):
            if self._mixed:
                block = block.mean(axis=1, keepdims=True, dtype=np.float32)
            if resampler is not None:
                block = resampler.resample_chunk(block)
            if len(block):
                yield block.tobytes()
        if resampler is not None:
            empty = np.zeros((0, self.audio.channel_count), np.float32)
            if len(tail := resampler.resample_chunk(empty, last=True)):
                yield tail.tobytes()

    def _open_resampler(self) -> Any:
        if not self._resampled:
            return None
        return soxr.ResampleStream(
            self.recorded_rate_hz, RESAMPLED_RATE_HZ, self.audio.channel_count, dtype="float32"
        )


def _why_cut_short(file: soundfile.SoundFile, path: Path) -> str | None:
    """Say why libsndfile would not read a recording to its end; None if it would."""
    if file.frames == _UNKNOWN_FRAMES:
        return "it does not say how long it is"
    if not file.frames and path.stat().st_size > _EMPTY_BYTES:
        return "its header says that it is empty"
    if file.format == "OGG":
        with path.open("rb") as ogg, mmap.mmap(ogg.fileno(), 0, access=mmap.ACCESS_READ) as pages:
            if pages.find(_OGG_STREAM_BEGIN, 1) > 0:
                return "it holds several streams"
    return None
