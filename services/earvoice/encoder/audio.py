"""The client's audio: checking its format, decoding its bytes, resampling to the model's rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from earvoice.api.v1 import types_pb2
from earvoice.runtime.audio_format import (
    AudioEncoding,
    AudioFormat,
    allowed_channels,
    allowed_rates_hz,
)
from earvoice.runtime.errors import InvalidAudioError, InvalidFieldError, check_range

PEAK_LIMIT = 2.0
"""Floats beyond this are not audio in [-1, 1], but int16 values or noise; resamplers and encoders
overshoot by far less."""

ZERO_CROSSINGS = 6
"""Half-width of the low-pass filter, in zero crossings of its sinc."""

ROLLOFF = 0.99
"""Cut-off as a share of the lower Nyquist frequency."""

BLOCK_OUTPUTS = 16_000
"""Outputs computed at once: each takes a copy of the samples under its window."""

Samples = NDArray[np.float32]


ENCODINGS: Mapping[Any, AudioEncoding] = {
    types_pb2.AudioEncoding.Value(f"AUDIO_ENCODING_{name.upper()}"): name
    for name in get_args(AudioEncoding)
}


def read_format(wire: types_pb2.AudioFormat) -> AudioFormat:
    """Check a format from the wire and return it."""
    if wire.encoding not in ENCODINGS:
        allowed = ", ".join(f"{name.upper()} ({number})" for number, name in ENCODINGS.items())
        raise InvalidFieldError("audio_format.encoding", int(wire.encoding), allowed)
    encoding, rate_hz = ENCODINGS[wire.encoding], wire.sample_rate_hertz
    check_range("audio_format.sample_rate_hertz", rate_hz, *allowed_rates_hz(encoding))
    channels = wire.channel_count or 1
    check_range("audio_format.channel_count", channels, 1, allowed_channels(encoding))
    return AudioFormat(encoding, rate_hz, channels)


def frame_count(audio_format: AudioFormat, data: bytes) -> int:
    frames, rest = divmod(len(data), audio_format.frame_bytes)
    if rest:
        raise InvalidAudioError(
            f"{len(data)} bytes of audio are not whole frames of {audio_format.frame_bytes} bytes",
            bytes=str(len(data)),
            frame_bytes=str(audio_format.frame_bytes),
        )
    return frames


def decode_audio(audio_format: AudioFormat, data: bytes) -> Samples:
    """[frames] float32 of one channel.

    int16 and G.711 are scaled to [-1, 1), two channels mixed down by their mean.
    """
    frame_count(audio_format, data)
    samples = _decode_interleaved(audio_format.encoding, data)
    if audio_format.channel_count == 1:
        return samples
    shape = (-1, audio_format.channel_count)
    mixed: Samples = samples.reshape(shape).mean(axis=1, dtype=np.float32)
    return mixed


def _decode_interleaved(encoding: AudioEncoding, data: bytes) -> Samples:
    if encoding == "linear16":
        return np.frombuffer(data, "<i2") * np.float32(1 / 32768)
    if encoding == "float32":
        return _checked_floats(np.frombuffer(data, "<f4"))
    table = _mu_law_table() if encoding == "mulaw" else _a_law_table()
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


class Resampler:
    """Windowed-sinc interpolation: a pure function of the samples and of the positions asked for.

    Output `j` is the sum over `i` of `x[i] · h((i / from - j / to) · base)`, with
    `h(t) = sinc(t) cos²(πt / 12) · base / from` for |t| ≤ 6 and `base = 0.99 · min(from, to)`:
    `torchaudio.functional.resample` with its defaults. Nothing is carried between calls, and sums
    are taken in float64, so that no output depends on what was computed beside it. Only taps
    inside the window are stored: memory is bounded for every pair of rates, where torchaudio's
    kernel for 47,999 Hz would take gigabytes.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        divisor = math.gcd(from_hz, to_hz)
        self._from, self._to = from_hz // divisor, to_hz // divisor
        base = ROLLOFF * min(self._from, self._to)
        reach = ZERO_CROSSINGS * self._from / base
        self._taps = math.floor(2 * reach) + 1
        phase = np.arange(self._to)
        self._first_tap = np.ceil(phase * self._from / self._to - reach).astype(np.int64)
        position = self._first_tap[:, None] + np.arange(self._taps)
        time = (position / self._from - phase[:, None] / self._to) * base
        time = time.clip(-ZERO_CROSSINGS, ZERO_CROSSINGS)
        window = np.cos(time * (math.pi / ZERO_CROSSINGS / 2)) ** 2
        self._weights: NDArray[np.float64] = np.sinc(time) * window * (base / self._from)

    def total_count(self, input_count: int) -> int:
        return -(-input_count * self._to // self._from)

    def complete_count(self, input_count: int) -> int:
        """Outputs that further samples cannot change any more."""
        if self._from == self._to:
            return input_count
        last_tap = self._first_tap + self._taps - 1
        whole_periods = max(0, (input_count - 1 - int(last_tap[-1])) // self._from + 1)
        rest = input_count - whole_periods * self._from
        return whole_periods * self._to + int(np.searchsorted(last_tap, rest, side="left"))

    def outputs(self, samples: Samples, start: int, stop: int) -> Samples:
        """Outputs [start, stop) float32 of the whole input [n] float32.

        The input counts as silent beyond its ends.
        """
        if self._from == self._to:
            return samples[start:stop]
        if stop <= start:
            return np.zeros(0, np.float32)
        return np.concatenate(
            [
                self._block(samples, first, min(first + BLOCK_OUTPUTS, stop))
                for first in range(start, stop, BLOCK_OUTPUTS)
            ]
        )

    def _block(self, samples: Samples, start: int, stop: int) -> Samples:
        output = np.arange(start, stop)
        period, phase = np.divmod(output, self._to)
        first = period * self._from + self._first_tap[phase]
        begin, end = int(first[0]), int(first[-1]) + self._taps
        padded = np.zeros(end - begin)
        inner = samples[max(begin, 0) : max(end, 0)]
        offset = max(-begin, 0)
        padded[offset : offset + len(inner)] = inner
        windows = np.lib.stride_tricks.sliding_window_view(padded, self._taps)
        if self._to == 1:
            # Whole-number ratios have one phase: a strided view needs no copy.
            summed = np.einsum("ij,j->i", windows[:: self._from], self._weights[0])
        else:
            summed = np.einsum("ij,ij->i", windows[first - begin], self._weights[phase])
        rounded: Samples = summed.astype(np.float32)
        return rounded
