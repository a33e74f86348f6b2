"""Times a request to another service."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from earvoice.api.v1 import types_pb2
from earvoice.policy.timeline import HopTimings


class RequestClock:
    """Runs from a request's sending.

    Args:
        starved_s: how long the event loop has been kept from its turns so far, in seconds. An
            answer waits for the end of such a turn; that is our own time and not the network's.
    """

    def __init__(self, starved_s: Callable[[], float]) -> None:
        self._starved_s = starved_s
        self._starved_before_s = starved_s()
        self._sent_s = time.perf_counter()

    def timings(self, told: types_pb2.Timings) -> HopTimings:
        """Return the request's timings, answered now.

        Args:
            told: by the service, with its answer.
        """
        passed_ms = (time.perf_counter() - self._sent_s) * 1000
        starved_ms = (self._starved_s() - self._starved_before_s) * 1000
        outside_ms = max(0.0, passed_ms - told.elapsed_ms)
        return HopTimings(passed_ms - min(starved_ms, outside_ms), told.elapsed_ms, told.compute_ms)


def lasting_since(timings: HopTimings, sent_s: float) -> HopTimings:
    """Return a request's timings as of its first sending: what is lost counts as network.

    Args:
        timings: of the attempt that was answered now.
        sent_s: the first attempt's time, on `time.perf_counter`.
    """
    return replace(timings, round_trip_ms=(time.perf_counter() - sent_s) * 1000)
