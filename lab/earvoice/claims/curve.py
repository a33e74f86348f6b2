"""Quality over latency: a curve's settings, and what lies between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earvoice.evaluation.resampling import Estimate, estimate

Floats = NDArray[np.float64]

_STEPS = 41
_LEAST_MS = 1e-6


@dataclass(frozen=True)
class Curve:
    """A policy's settings in every draw.

    Attributes:
        latencies_ms: [P, R + 1], in order of the plain result's latency.
        values: [P, R + 1], BLEU or another number.
    """

    latencies_ms: Floats
    values: Floats

    @classmethod
    def through(cls, latencies_ms: Sequence[Floats], values: Sequence[Floats]) -> Curve:
        """Return the curve through points, each with latency and value in every draw."""
        order = np.argsort([latency[0] for latency in latencies_ms])
        return cls(np.stack(latencies_ms)[order], np.stack(values)[order])

    @property
    def range_ms(self) -> tuple[float, float]:
        """Lowest and highest latency of the plain result."""
        return float(self.latencies_ms[0, 0]), float(self.latencies_ms[-1, 0])

    def at(self, latency_ms: float | Floats) -> Floats:
        """Return the values at latencies within the range in every draw, [R + 1] or [R + 1, L].

        Between two settings they are interpolated (Papi 2023, footnote 8). At least two settings.
        """
        # A draw may turn the order of two neighbours.
        order = np.argsort(self.latencies_ms, axis=0)
        latencies = np.take_along_axis(self.latencies_ms, order, 0)
        values = np.take_along_axis(self.values, order, 0)
        wanted = np.atleast_1d(latency_ms)
        passed = (latencies[:, :, None] <= wanted).sum(0)
        left = np.clip(passed - 1, 0, len(latencies) - 2)
        draws = np.arange(latencies.shape[1])[:, None]
        near, far = (latencies[left + step, draws] for step in (0, 1))
        before, behind = (values[left + step, draws] for step in (0, 1))
        # Two settings of one latency, in a draw, leave nothing to interpolate.
        share = np.clip((wanted - near) / np.maximum(far - near, _LEAST_MS), 0.0, 1.0)
        between: Floats = before + share * (behind - before)
        return between[:, 0] if np.isscalar(latency_ms) else between

    def reaches(self, latency_ms: float) -> bool:
        """Tell whether the latency lies within the range."""
        low, high = self.range_ms
        return low <= latency_ms <= high


def overlap_ms(first: Curve, second: Curve) -> tuple[float, float] | None:
    """Return the latencies that both curves reach; None if there are none."""
    low = max(first.range_ms[0], second.range_ms[0])
    high = min(first.range_ms[1], second.range_ms[1])
    return (low, high) if low < high else None


def mean_between(curve: Curve, between_ms: tuple[float, float]) -> Floats:
    """Return a curve's value averaged over latencies, in every draw."""
    mean: Floats = curve.at(np.linspace(*between_ms, _STEPS)).mean(-1)
    return mean


def mean_difference(first: Curve, second: Curve, between_ms: tuple[float, float]) -> Floats:
    """Return the first minus the second, averaged over latencies, in every draw."""
    return mean_between(first, between_ms) - mean_between(second, between_ms)


def compare(
    first: Curve | None, second: Curve | None, part: tuple[float, float] = (0.0, 1.0)
) -> tuple[Estimate, tuple[float, float]] | None:
    """Return one curve less another, averaged over a part of what both reach.

    Args:
        first: a curve, or None where too few settings were run.
        second: the other, over the same draws.
        part: of the common range, as shares of it.

    Returns:
        The mean difference and the latencies in ms that it is the mean over; None if a curve is
        missing or the two have no latency in common.
    """
    if first is None or second is None:
        return None
    both = overlap_ms(first, second)
    if both is None:
        return None
    low, high = both
    between_ms = low + part[0] * (high - low), low + part[1] * (high - low)
    return estimate(mean_difference(first, second, between_ms)), between_ms
