"""Average proportion: how much of the source had been heard, on the average over units."""

from __future__ import annotations

from collections.abc import Sequence


def average_proportion(
    times_ms: Sequence[float], source_length_ms: float, target_units: int
) -> float:
    """Return AP (Cho and Esipova 2016): sum of t / (T * m).

    m is the reference's length, as in SimulEval 1.1, so that AP can exceed 1.
    """
    return sum(times_ms) / (source_length_ms * target_units)
