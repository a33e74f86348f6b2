"""Paired bootstrap: the same draws of instances for whatever is compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earvoice.evaluation.bleu import corpus_bleu

Floats = NDArray[np.float64]

SEED = 2023
RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number with its uncertainty.

    Attributes:
        value: on the test set itself.
        low: lower end of the 95 % interval; nan without one.
        high: upper end.
    """

    value: float
    low: float
    high: float


class Resampling:
    """Draws of N instances with replacement (Koehn 2004).

    Draw 0 is the test set itself, so that row 0 of whatever is computed is the plain result.

    Args:
        inputs: N, above 0.
        resamples: how many draws besides.
        seed: of the draws.
    """

    def __init__(self, inputs: int, resamples: int = RESAMPLES, seed: int = SEED) -> None:
        drawn = np.random.default_rng(seed).multinomial(
            inputs, np.full(inputs, 1 / inputs), size=resamples
        )
        # [R + 1, N]: how often each instance is in each draw.
        self._weights: Floats = np.vstack([np.ones(inputs), drawn]).astype(np.float64)

    def bleu(self, statistics: Floats) -> Floats:
        """Return corpus BLEU of each draw, [R + 1], from ``sentence_statistics`` [N, 10]."""
        return corpus_bleu(self._weights @ statistics)

    def mean(self, values: Floats) -> Floats:
        """Return the mean over the instances of each draw, [R + 1]; NaN values are left out."""
        known = ~np.isnan(values)
        with np.errstate(invalid="ignore"):
            means: Floats = (self._weights @ np.where(known, values, 0.0)) / (
                self._weights @ known.astype(np.float64)
            )
        return means

    def ratio(self, parts: Floats, wholes: Floats) -> Floats:
        """Return the sum of parts over the sum of wholes of each draw, [R + 1]."""
        ratios: Floats = (self._weights @ parts) / (self._weights @ wholes)
        return ratios


def estimate(draws: Floats) -> Estimate:
    """Return the plain result, row 0, with the interval of the other rows."""
    low, high = band(draws[1:]) or (float("nan"), float("nan"))
    return Estimate(float(draws[0]), low, high)


def band(values: Floats) -> tuple[float, float] | None:
    """Return the borders of the middle ``CONFIDENCE`` of values; None if most are unknown."""
    known = values[~np.isnan(values)]
    if 2 * len(known) <= len(values):
        return None
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(known, [tail, 100 - tail])
    return float(low), float(high)
