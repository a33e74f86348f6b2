"""How one curve is judged better than another, and which of its points are worth keeping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

LAGS_MS = (1000, 1250, 1500, 1750, 2000, 2500, 3000)
"""Latencies that are equally dear to us."""

MOST_POINTS = 6
"""Of a grid, as many as the papers' curves have."""

ParameterT = TypeVar("ParameterT", int, float)


@dataclass(frozen=True)
class TriedPoint(Generic[ParameterT]):
    """A policy with one value of its parameter.

    Attributes:
        parameter: the value.
        laal_ms: its mean LAAL, ideal clock.
        bleu: its BLEU.
    """

    parameter: ParameterT
    laal_ms: float
    bleu: float


def quality(points: Sequence[TriedPoint[ParameterT]]) -> float:
    """Return the mean over `LAGS_MS` of the BLEU that a curve reaches without being later.

    Between two points it is interpolated, and below the fastest one towards nothing at no lag: a
    curve that begins just behind a lag is hardly worse for it.
    """
    front: list[TriedPoint[ParameterT]] = front_of(points)
    lags = [0.0, *(point.laal_ms for point in front)]
    scores = [0.0, *(point.bleu for point in front)]
    return float(np.interp(LAGS_MS, lags, scores).mean())


def front_of(points: Sequence[TriedPoint[ParameterT]]) -> list[TriedPoint[ParameterT]]:
    """Return the points that none beats in both latency and quality, the fastest first."""
    front: list[TriedPoint[ParameterT]] = []
    for point in sorted(points, key=lambda point: (point.laal_ms, -point.bleu)):
        if not front or point.bleu > front[-1].bleu:
            front.append(point)
    return front


def grid_of(points: Sequence[TriedPoint[ParameterT]]) -> tuple[ParameterT, ...]:
    """Return at most `MOST_POINTS` values from the front, evenly spread over its latencies."""
    front = front_of(points)
    lags = np.array([point.laal_ms for point in front])
    wanted = np.linspace(lags[0], lags[-1], MOST_POINTS)
    nearest = sorted({int(np.abs(lags - lag).argmin()) for lag in wanted})
    return tuple(front[place].parameter for place in nearest)


def default_of(points: Sequence[TriedPoint[ParameterT]], most_lag_ms: float) -> ParameterT:
    """Return the value of best quality that keeps a lag; the fastest where none does."""
    front = front_of(points)
    allowed = [point for point in front if point.laal_ms <= most_lag_ms]
    return (allowed[-1] if allowed else front[0]).parameter


def best_of(qualities: Mapping[str, float], usual: str, least_gain: float) -> str:
    """Return the name of the best curve; the usual one unless another gains enough."""
    best = max(qualities, key=lambda name: qualities[name])
    return best if qualities[best] >= qualities[usual] + least_gain else usual
