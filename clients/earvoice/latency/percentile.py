"""How a number is spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True)
class Spread:
    """Mean, percentiles and maximum of some values, in their unit."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: float


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile, interpolated between neighbours.

    Args:
        ordered: rising; at least one.
        share: 0 to 1.
    """
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread_of(values: Sequence[float]) -> Spread | None:
    """Return the spread; None of no values."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p95, p99 = (percentile(ordered, share) for share in (0.5, 0.95, 0.99))
    return Spread(fmean(ordered), p50, p95, p99, ordered[-1])
