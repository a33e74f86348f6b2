"""The format of a session's audio, for client and services alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

SoundEncoding = Literal["linear16", "float32", "mulaw", "alaw"]
"""Of one sample of one channel, little-endian."""

AudioEncoding = Literal[SoundEncoding, "words"]
"""A "sample" of words is a word of a text source, UTF-8, padded with zeros."""

WORD_BYTES = 64
WORDS_PER_SECOND = 4
"""Converts milliseconds into words: roughly how fast English is spoken (280 ms a word)."""

BYTES_PER_SAMPLE: dict[AudioEncoding, int] = {
    "linear16": 2,
    "float32": 4,
    "mulaw": 1,
    "alaw": 1,
    "words": WORD_BYTES,
}
SAMPLE_RATE_RANGE_HZ = (8_000, 48_000)
CHANNEL_LIMIT = 2


def allowed_rates_hz(encoding: AudioEncoding) -> tuple[int, int]:
    """Return the lowest and the highest rate."""
    return (WORDS_PER_SECOND, WORDS_PER_SECOND) if encoding == "words" else SAMPLE_RATE_RANGE_HZ


def allowed_channels(encoding: AudioEncoding) -> int:
    """Return the largest number of channels."""
    return 1 if encoding == "words" else CHANNEL_LIMIT


@dataclass(frozen=True)
class AudioFormat:
    """The format of every byte of a session's audio.

    Attributes:
        sample_rate_hz: frames per second, 8000 to 48000; of words 4.
        channel_count: interleaved channels, 1 or 2; the server mixes 2 down. Of words 1.

    Raises:
        ValueError: a value that no server takes.
    """

    encoding: AudioEncoding = "linear16"
    sample_rate_hz: int = 16_000
    channel_count: int = 1

    def __post_init__(self) -> None:
        if self.encoding not in get_args(AudioEncoding):
            allowed = ", ".join(get_args(AudioEncoding))
            raise ValueError(f"encoding = {self.encoding!r} is not allowed; allowed: {allowed}")
        low, high = allowed_rates_hz(self.encoding)
        if not low <= self.sample_rate_hz <= high:
            raise ValueError(
                f"sample_rate_hz = {self.sample_rate_hz} is not allowed; allowed: {low} to {high}"
            )
        channels = allowed_channels(self.encoding)
        if not 1 <= self.channel_count <= channels:
            raise ValueError(
                f"channel_count = {self.channel_count} is not allowed; allowed: 1 to {channels}"
            )

    @property
    def frame_bytes(self) -> int:
        return BYTES_PER_SAMPLE[self.encoding] * self.channel_count

    def duration_ms(self, byte_count: int) -> float:
        return 1000 * (byte_count / self.frame_bytes) / self.sample_rate_hz

    def position_ms(self, samples: int) -> float:
        """Milliseconds from the first frame to the frame with this index."""
        return 1000 * samples / self.sample_rate_hz

    def chunk_bytes(self, chunk_ms: int) -> int:
        """Bytes of a chunk of whole frames that lasts ``chunk_ms``, at least one frame."""
        return max(1, self.sample_rate_hz * chunk_ms // 1000) * self.frame_bytes


WORDS = AudioFormat("words", WORDS_PER_SECOND)
