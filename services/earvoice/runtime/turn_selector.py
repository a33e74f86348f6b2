"""How long an event loop was kept from its turn by what ran on it."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from typing import Any

LONG_TURN_S = 0.005
"""What all sessions do in one turn takes a millisecond; more keeps the others waiting."""


class TurnSelector(selectors.DefaultSelector):
    """An event loop's selector that sums up the loop's long turns.

    A turn is what the loop runs between two looks at its sockets. An answer that comes meanwhile is
    read after it, so a long turn is the process's own delay and not the network's.

    Args:
        clock_s: monotonic.
    """

    def __init__(self, clock_s: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._turn_s = clock_s()
        self._starved_s = 0.0

    @property
    def starved_s(self) -> float:
        """Seconds of long turns so far, the one that runs included."""
        return self._starved_s + _long_s(self._clock_s() - self._turn_s)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        """Wait for sockets: one turn is over, the next begins."""
        self._starved_s += _long_s(self._clock_s() - self._turn_s)
        ready = super().select(timeout)
        self._turn_s = self._clock_s()
        return ready


def _long_s(turn_s: float) -> float:
    return turn_s if turn_s > LONG_TURN_S else 0.0
