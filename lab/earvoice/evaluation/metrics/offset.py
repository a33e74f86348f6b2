"""When the output begins, and how long after the source it ends."""

from __future__ import annotations

from collections.abc import Sequence


def start_offset(times_ms: Sequence[float]) -> float:
    """Return the time of the first unit in ms."""
    return times_ms[0]


def end_offset(times_ms: Sequence[float], source_length_ms: float) -> float:
    """Return the time of the last unit after the source's end, in ms; below 0 if before it."""
    return times_ms[-1] - source_length_ms
