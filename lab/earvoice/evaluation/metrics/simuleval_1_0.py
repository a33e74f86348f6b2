"""Average lagging and proportion as SimulEval 1.0 computed them; older papers print these.

The end of sentence is a unit there, of the hypothesis and of the reference. Its DAL is ours.
"""

from __future__ import annotations

from collections.abc import Sequence


def average_lagging_1_0(
    times_ms: Sequence[float], source_length_ms: float, reference_units: int
) -> float:
    """Return AL with m + 1 reference units, and an ideal translator that stops at its last one.

    Args:
        times_ms: t, the end of sentence included; at least one.
        source_length_ms: T.
        reference_units: m, without the end of sentence.
    """
    total_ms, counted = 0.0, 0
    for index, time_ms in enumerate(times_ms):
        step = min(index, reference_units)
        total_ms += time_ms - step * source_length_ms / (reference_units + 1)
        counted += 1
        if time_ms >= source_length_ms:
            break
    return total_ms / counted


def average_proportion_1_0(times_ms: Sequence[float], source_length_ms: float) -> float:
    """Return AP over the hypothesis' own length, the end of sentence included."""
    return sum(times_ms) / (source_length_ms * len(times_ms))
