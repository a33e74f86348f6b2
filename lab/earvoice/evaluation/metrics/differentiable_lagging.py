"""Differentiable average lagging: a unit costs time, so what comes at once is late in part."""

from __future__ import annotations

from collections.abc import Sequence


def differentiable_average_lagging(times_ms: Sequence[float], source_length_ms: float) -> float:
    """Return DAL in ms (Arivazhagan 2019).

    g'_1 = t_1, g'_i = max(t_i, g'_(i-1) + 1 / gamma); the mean of g'_i - (i - 1) / gamma over all
    units, with gamma = n / T: always the hypothesis' length.

    Args:
        times_ms: t, at least one.
        source_length_ms: T.
    """
    gamma = len(times_ms) / source_length_ms
    total_ms, paced_ms = 0.0, times_ms[0]
    for index, time_ms in enumerate(times_ms):
        if index:
            paced_ms = max(time_ms, paced_ms + 1 / gamma)
        total_ms += paced_ms - index / gamma
    return total_ms / len(times_ms)
