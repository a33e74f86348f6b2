"""A telephone line simulated on log-mel features, as sound comes out of a real one.

`earvoice.corpus.telephone_line` sends sound; this varies features that are cached. What stays in
the band, how coding noise follows the voice and what is left above 4 kHz agree with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from earvoice.corpus.telephone_line import LINE_RATE_HZ
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.frontend import FFT_SAMPLES, PRE_EMPHASIS, mel_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Features = NDArray[np.float32]

_LOW_HZ = (150.0, 350.0)
_HIGH_HZ = (3_200.0, 3_750.0)
_EDGE_HZ = (30.0, 90.0)
"""How gently the band ends: the logistic curve's scale."""
_CODING_SNR_DB = (28.0, 39.0)
"""Speech above coding noise: 38 of 8-bit µ-law (6.02 · 8 - 20 lg ln 256 + 4.77), less of two."""
_FLOOR_NATS = (-10.0, 6.5)
"""What is left above 4 kHz, from digital silence to rounding to 16 bits (5.5) and a little more."""
_NOISE_DEVIATION_NATS = 0.5
"""How much noise varies from frame to frame in one mel bin."""

_WEIGHTS = mel_weights().numpy().astype(np.float64)
_BINS_HZ = np.arange(len(_WEIGHTS)) * SAMPLE_RATE_HZ / FFT_SAMPLES
_IN_BAND = _BINS_HZ < LINE_RATE_HZ / 2
_EMPHASIS = np.abs(1 - PRE_EMPHASIS * np.exp(-2j * np.pi * _BINS_HZ / SAMPLE_RATE_HZ)) ** 2
_WHITE = _EMPHASIS @ _WEIGHTS
"""[80] white noise of power 1 in every Fourier bin, as features hear it."""
_WIDTHS = _WEIGHTS.sum(axis=0)


def telephone(features: Features, generator: np.random.Generator) -> Features:
    """Keep what an 8 kHz line with µ-law keeps, [frames, 80] log-mel before normalisation."""
    passed = _band(generator)
    power = np.exp(features.astype(np.float64))
    # Coding noise is white and follows the power of what is sent, before pre-emphasis.
    sent = (power * passed) @ (_WIDTHS / _WHITE)
    coding = sent * 10 ** (-generator.uniform(*_CODING_SNR_DB) / 10) / np.sum(_IN_BAND)
    floor = np.exp(generator.uniform(*_FLOOR_NATS)) * _WHITE / _WHITE[-1]
    noise = np.outer(coding, (_EMPHASIS * _IN_BAND) @ _WEIGHTS) + floor
    noise *= np.exp(generator.normal(0.0, _NOISE_DEVIATION_NATS, features.shape))
    return np.asarray(np.log(power * passed + noise), dtype=np.float32)


def _band(generator: np.random.Generator) -> NDArray[np.float64]:
    """Return how much of each mel bin's power passes, [80], 0 to 1."""
    low, high, edge = (generator.uniform(*span) for span in (_LOW_HZ, _HIGH_HZ, _EDGE_HZ))
    rising = 1 / (1 + np.exp((low - _BINS_HZ) / edge))
    falling = 1 / (1 + np.exp((_BINS_HZ - high) / edge))
    amplitude = rising * falling * _IN_BAND
    return np.asarray((amplitude**2 * _EMPHASIS) @ _WEIGHTS / _WHITE)
