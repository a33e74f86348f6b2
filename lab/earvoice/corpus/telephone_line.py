"""A telephone line: 300 to 3,400 Hz, 8 kHz, 8-bit µ-law (ITU-T G.711)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import soxr

from earvoice.corpus.synthesizer import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from numpy.typing import NDArray

LINE_RATE_HZ = 8_000
_BAND_HZ = (300.0, 3_400.0)
_EDGE_HZ = 60.0
_MU = 255.0
_STEPS = 127.5
_INT16_SCALE = 32_767


def send_over_line(samples: NDArray[np.int16]) -> NDArray[np.int16]:
    """Return int16 [samples] at 16 kHz as they come out of a telephone, equally many."""
    line = soxr.resample(
        samples.astype(np.float32) / _INT16_SCALE, SAMPLE_RATE_HZ, LINE_RATE_HZ, quality="HQ"
    )
    line = np.clip(_band(line), -1.0, 1.0)
    loudness = np.log1p(_MU * np.abs(line)) / np.log1p(_MU)
    coded = np.round(np.sign(line) * loudness * _STEPS) / _STEPS
    decoded = np.sign(coded) * np.expm1(np.abs(coded) * np.log1p(_MU)) / _MU
    heard = soxr.resample(decoded.astype(np.float32), LINE_RATE_HZ, SAMPLE_RATE_HZ, quality="HQ")
    fitted = np.zeros(len(samples), np.float32)
    fitted[: len(heard)] = heard[: len(samples)]
    return np.asarray(np.round(np.clip(fitted, -1.0, 1.0) * _INT16_SCALE), dtype=np.int16)


def _band(line: NDArray[np.float32]) -> NDArray[np.float32]:
    frequencies = np.fft.rfftfreq(len(line), 1 / LINE_RATE_HZ)
    low, high = _BAND_HZ
    rising = 1 / (1 + np.exp(-(frequencies - low) / _EDGE_HZ))
    falling = 1 / (1 + np.exp((frequencies - high) / _EDGE_HZ))
    return np.asarray(
        np.fft.irfft(np.fft.rfft(line) * rising * falling, len(line)), dtype=np.float32
    )
