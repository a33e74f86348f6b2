"""Time as the schedules count it."""

from __future__ import annotations

ROUNDING_MS = 0.13
"""Segments end on whole samples, up to one (0.125 ms at 8 kHz) before their boundary."""


def passed_units(duration_ms: float, unit_ms: float) -> int:
    """Return how many whole units of time have passed."""
    return int((duration_ms + ROUNDING_MS) // unit_ms)
