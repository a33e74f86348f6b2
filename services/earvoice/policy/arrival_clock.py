"""When the session's first sample existed, seen from the arrival of the audio."""

from __future__ import annotations

from collections import deque

WINDOW_S = 60.0


class ArrivalClock:
    """Estimates the origin of a paced stream.

    A paced client sends a chunk when its last sample exists, so each message tells an origin: its
    arrival less the audio so far. The earliest one was delayed least. Sound cards drift (50 ppm
    are 180 ms an hour), so only a sliding window counts.

    Args:
        sample_rate_hertz: frames per second.
    """

    def __init__(self, sample_rate_hertz: int) -> None:
        self._rate = sample_rate_hertz
        # (arrival, origin), origins increasing: the first is the window's earliest.
        self._origins: deque[tuple[float, float]] = deque()

    def note(self, received_samples: int, arrival_s: float) -> None:
        """Take note of a message: audio received with it, and when."""
        origin_s = arrival_s - received_samples / self._rate
        while self._origins and self._origins[-1][1] >= origin_s:
            self._origins.pop()
        self._origins.append((arrival_s, origin_s))
        while self._origins[0][0] < arrival_s - WINDOW_S:
            self._origins.popleft()

    def assume(self, origin_s: float, now_s: float) -> None:
        """Take over an origin from elsewhere: what comes first may be sent again, and late."""
        self._origins.append((now_s, origin_s))

    @property
    def origin_s(self) -> float:
        """When the first sample existed, on the clock of ``note``.

        Raises:
            IndexError: no audio has come.
        """
        return self._origins[0][1]
