"""The client's audio format, and its bytes as numbers."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np
from numpy.typing import NDArray

from earvoice.runtime.errors import InvalidAudioError, InvalidFieldError

MINIMUM_SAMPLE_RATE_HZ = 8_000
MAXIMUM_SAMPLE_RATE_HZ = 48_000
PEAK_LIMIT = 2.0
"""Floats beyond this are not audio in [-1, 1], but int16 values or noise; resamplers and encoders
overshoot by far less."""

Samples = NDArray[np.float32]


class AudioEncoding(enum.IntEnum):
    """How one sample of one channel is written; the numbers are those on the wire."""

    LINEAR16 = 1
    FLOAT32 = 2
    MULAW = 3
    ALAW = 4


_SAMPLE_BYTES = {
    AudioEncoding.LINEAR16: 2,
    AudioEncoding.FLOAT32: 4,
    AudioEncoding.MULAW: 1,
    AudioEncoding.ALAW: 1,
}


@dataclasses.dataclass(frozen=True)
class AudioFormat:
    """A checked format.

    Attributes:
        encoding: one of `AudioEncoding`, or its number.
        sample_rate_hz: frames per second, 8000 to 48000.
        channel_count: interleaved channels, 1 or 2.

    Raises:
        InvalidFieldError: a value is not allowed.
    """

    encoding: int
    sample_rate_hz: int
    channel_count: int = 1

    def __post_init__(self) -> None:
        """Check the values."""
        if self.encoding not in _SAMPLE_BYTES:
            allowed = ", ".join(f"{item.name} ({item.value})" for item in AudioEncoding)
            raise InvalidFieldError("audio_format.encoding", int(self.encoding), allowed)
        if not MINIMUM_SAMPLE_RATE_HZ <= self.sample_rate_hz <= MAXIMUM_SAMPLE_RATE_HZ:
            allowed = f"{MINIMUM_SAMPLE_RATE_HZ} to {MAXIMUM_SAMPLE_RATE_HZ}"
            raise InvalidFieldError("audio_format.sample_rate_hertz", self.sample_rate_hz, allowed)
        if self.channel_count not in (1, 2):
            raise InvalidFieldError("audio_format.channel_count", self.channel_count, "1 or 2")

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame: a sample of every channel."""
        return _SAMPLE_BYTES[AudioEncoding(self.encoding)] * self.channel_count

    def frame_count(self, data: bytes) -> int:
        """Number of frames in some audio.

        Raises:
            InvalidAudioError: the last frame is broken.
        """
        frames, rest = divmod(len(data), self.frame_bytes)
        if rest:
            raise InvalidAudioError(
                f"{len(data)} bytes of audio are not whole frames of {self.frame_bytes} bytes",
                bytes=str(len(data)),
                frame_bytes=str(self.frame_bytes),
            )
        return frames

    def decode(self, data: bytes) -> Samples:
        """Turn bytes into one channel; two are mixed down by their mean.

        Returns:
            [frames] float32; int16 and G.711 are scaled to [-1, 1).

        Raises:
            InvalidAudioError: a frame is broken, or a float is no number or far beyond [-1, 1].
        """
        self.frame_count(data)
        samples = self._decode_interleaved(data)
        if self.channel_count == 1:
            return samples
        mixed: Samples = samples.reshape(-1, self.channel_count).mean(axis=1, dtype=np.float32)
        return mixed

    def _decode_interleaved(self, data: bytes) -> Samples:
        if self.encoding == AudioEncoding.LINEAR16:
            return np.frombuffer(data, "<i2") * np.float32(1 / 32768)
        if self.encoding == AudioEncoding.FLOAT32:
            return _checked_floats(np.frombuffer(data, "<f4"))
        table = _mu_law_table() if self.encoding == AudioEncoding.MULAW else _a_law_table()
        return table[np.frombuffer(data, np.uint8)]


def _checked_floats(samples: Samples) -> Samples:
    # A comparison with NaN is false, so one pass finds NaN, infinities and wrong scales alike.
    fine = np.abs(samples) <= PEAK_LIMIT
    if not fine.all():
        frame = int(np.argmin(fine))
        raise InvalidAudioError(
            f"sample {frame} of the message is {samples[frame]}; "
            f"allowed: numbers in [-1, 1] (overshoot up to {PEAK_LIMIT})",
            value=str(samples[frame]),
        )
    return samples.astype(np.float32)


def _mu_law_table() -> Samples:
    """[256] float32: G.711 mu-law codes as amplitudes."""
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    magnitude = ((((code & 0x0F) << 3) + 0x84) << ((code >> 4) & 0x07)) - 0x84
    return (np.where(code & 0x80, -magnitude, magnitude) / 32768).astype(np.float32)


def _a_law_table() -> Samples:
    """[256] float32: G.711 A-law codes as amplitudes."""
    code = np.arange(256, dtype=np.int32) ^ 0x55
    exponent = (code >> 4) & 0x07
    mantissa = ((code & 0x0F) << 4) + 8
    magnitude = np.where(exponent == 0, mantissa, (mantissa + 0x100) << np.maximum(exponent - 1, 0))
    return (np.where(code & 0x80, magnitude, -magnitude) / 32768).astype(np.float32)
