"""Which sessions are traced: whole or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable

from earvoice.telemetry.trace_context import sampled_parent


class SessionSampler:
    """Draws once a session.

    A sampler of OpenTelemetry's decides by trace, and each segment is a trace of its own: a session
    would be traced in tatters.

    Args:
        ratio: share of sessions that are traced, 0 to 1.
        draw: gives a number from 0 up to, but not 1.
    """

    def __init__(self, ratio: float, draw: Callable[[], float] = random.random) -> None:
        self._ratio = ratio
        self._draw = draw

    def traces(self, traceparent: str) -> bool:
        """Say whether a session is traced; it is where its caller's trace is kept.

        Args:
            traceparent: of the caller, or empty.
        """
        return sampled_parent(traceparent) is not None or self._draw() < self._ratio
