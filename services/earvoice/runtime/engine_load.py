"""How busy the thread that computes is."""

from __future__ import annotations

import time
from collections.abc import Callable


class EngineLoad:
    """Counts an engine's work. The engine's thread writes, others read.

    Args:
        waiting_count: says how many requests wait for the engine.

    Attributes:
        busy_s: seconds of computation so far.
        on_batch: told of every computation how many sessions shared it; None for nobody.
    """

    def __init__(self, waiting_count: Callable[[], int]) -> None:
        self._waiting_count = waiting_count
        self.busy_s = 0.0
        self.on_batch: Callable[[int], None] | None = None

    @property
    def waiting_count(self) -> int:
        """Requests that wait."""
        return self._waiting_count()

    def note(self, computed_s: float, batch_size: int) -> None:
        """Count a computation."""
        self.busy_s += computed_s
        if self.on_batch is not None:
            self.on_batch(batch_size)


class BusyRatio:
    """The share of time that an engine computed, since it was read last.

    Args:
        load: of the engine.
        clock_s: monotonic.
    """

    def __init__(self, load: EngineLoad, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._load = load
        self._clock_s = clock_s
        self._read_s = clock_s()
        self._busy_s = load.busy_s

    def read(self) -> float:
        """Return the share, 0 to 1; a computation counts when it has ended."""
        now_s, busy_s = self._clock_s(), self._load.busy_s
        passed_s = now_s - self._read_s
        computed_s = busy_s - self._busy_s
        self._read_s, self._busy_s = now_s, busy_s
        return min(1.0, computed_s / passed_s) if passed_s > 0 else 0.0
