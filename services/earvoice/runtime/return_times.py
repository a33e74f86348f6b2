"""When those who are refused may come again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

EARLIEST_S = 1.0
INTERVAL_S = 0.25
LATEST_S = 10.0


class ReturnTimes:
    """Appointments: one who is refused comes after the other, not all of them at once.

    Every knock takes time from the sessions that run. So they come every `INTERVAL_S`, however
    many wait: a place that becomes free is taken as soon, and who waits alone waits `EARLIEST_S`.
    Where so many wait that the last would come after `LATEST_S`, times are drawn before that.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_s = -LATEST_S

    def next_ms(self) -> int:
        """Return how long the next one is to wait, in ms: from `EARLIEST_S` to `LATEST_S`."""
        now_s = self._clock()
        wait_s = max(self._last_s + INTERVAL_S - now_s, EARLIEST_S)
        if wait_s > LATEST_S:
            wait_s = random.uniform(EARLIEST_S, LATEST_S)  # noqa: S311 - no secret
        else:
            self._last_s = now_s + wait_s
        return round(1000 * wait_s)
