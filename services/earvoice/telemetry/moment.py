"""Moments of a process's monotonic clock, and where they are on the wall."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


class WallAnchor:
    """Places moments of a monotonic clock on the wall.

    Read once for all spans of a segment or a request: its durations are exact, whatever happens to
    the wall clock meanwhile.

    Args:
        monotonic_ns: the clock that the moments are read from.
        wall_ns: since 1970.
    """

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.perf_counter_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._offset_ns = wall_ns() - monotonic_ns()

    def wall_ns(self, moment_s: float) -> int:
        """Return when a moment was, in ns since 1970."""
        return self._offset_ns + round(moment_s * 1e9)


@dataclass(frozen=True, slots=True)
class Interval:
    """From one moment to another, on a monotonic clock in seconds."""

    start_s: float
    end_s: float
