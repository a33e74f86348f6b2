"""Exact resampling to the model's rate, the same however the audio is cut."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from earvoice.encoder.audio_format import Samples

ZERO_CROSSINGS = 6
"""Half-width of the low-pass filter, in zero crossings of its sinc."""

ROLLOFF = 0.99
"""Cut-off as a share of the lower Nyquist frequency."""

BLOCK_OUTPUTS = 16_000
"""Outputs computed at once: each takes a copy of the samples under its window."""


class Resampler:
    """Windowed-sinc interpolation: a pure function of the samples and of the positions asked for.

    Output `j` is the sum over `i` of `x[i] · h((i / from - j / to) · base)`, with
    `h(t) = sinc(t) cos²(πt / 12) · base / from` for |t| ≤ 6 and `base = 0.99 · min(from, to)`:
    `torchaudio.functional.resample` with its defaults. Nothing is carried between calls, and sums
    are taken in float64, so that no output depends on what was computed beside it. Only taps
    inside the window are stored: memory is bounded for every pair of rates, where torchaudio's
    kernel for 47,999 Hz would take gigabytes.

    Args:
        from_hz: rate of the input, 1 or more.
        to_hz: rate of the output, 1 or more.
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
        """Outputs that an ended signal of this many samples has."""
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
        """Compute outputs [start, stop); beyond its ends the input is silent.

        Args:
            samples: [n] float32, the whole input from its beginning.
            start: first output, 0 or more.
            stop: the one after the last.

        Returns:
            [stop - start] float32.
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
        """See `outputs`; here start < stop."""
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
