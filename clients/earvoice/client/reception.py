"""When a session's audio went out and its answers came in, and which answers are overdue."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from earvoice.client.event import SegmentDone, Started, TranslationEvent
from earvoice.runtime.stream_ranges import SEGMENT_MS

LONGEST_SILENCE_S = 60.0
"""A server that only answers health checks may be slow, or something else answers for it."""


class ReceptionClock:
    """The client's wall clock of one stream: how long after the first sample something arrived.

    Args:
        paced: a chunk is sent when its last sample exists, or later, if it had to wait: the
            earliest sending tells when the first sample existed. False: the first sending does.
    """

    def __init__(self, *, paced: bool, now_s: Callable[[], float]) -> None:
        self._paced = paced
        self._now_s = now_s
        self._origin_s = math.inf  # as long as nothing was sent

    def note_sending(self, begin_ms: float, end_ms: float) -> None:
        """Note that the audio between two positions is about to be sent."""
        if self._paced:
            self._origin_s = min(self._origin_s, self._now_s() - end_ms / 1000)
        elif self._origin_s == math.inf:
            self._origin_s = self._now_s() - begin_ms / 1000

    def read_ms(self) -> float:
        """Milliseconds since the first sample; 0 as long as nothing was sent."""
        return max(0.0, 1000 * (self._now_s() - self._origin_s))


class StallWatch:
    """Notices a server that has stopped answering although the connection seems to be up.

    Every segment is answered, so a missing answer is noticed.

    Args:
        timeout_s: seconds that an answer may be late before the server is asked for its health.
    """

    def __init__(
        self,
        timeout_s: float,
        now_s: Callable[[], float],
        answers: Callable[[], Awaitable[bool]],
    ) -> None:
        self._timeout_s = timeout_s
        self._now_s = now_s
        self._answers = answers
        self._segment_ms = 0
        self._done_ms = 0.0
        self._sent_ms = 0.0
        # Since when an answer is due; None if none is. The session's start is due at once.
        self._due_s: float | None = now_s()
        self._asked_s = now_s()

    @property
    def interval_s(self) -> float:
        return self._timeout_s / 5

    def note_sent(self, end_ms: float) -> None:
        """Note that audio was sent up to a position; infinite at its end: then all are due."""
        self._sent_ms = end_ms
        if self._due_s is None and self._is_due():
            self._due_s = self._asked_s = self._now_s()

    def note_event(self, event: TranslationEvent) -> None:
        match event:
            case Started():
                waits_ms = (event.options.segment_ms or 0) + (event.options.initial_wait_ms or 0)
                # Holding a target lag may make segments as long as is allowed.
                self._segment_ms = SEGMENT_MS[1] if event.options.target_lag_ms else waits_ms
                self._done_ms = event.options.audio.position_ms(event.next_sample)
            case SegmentDone():
                self._done_ms = event.end_ms
        self._due_s = self._now_s() if self._is_due() else None
        self._asked_s = self._now_s()

    def note_longer_segments(self, segment_ms: int) -> None:
        self._segment_ms = max(self._segment_ms, segment_ms)

    def _is_due(self) -> bool:
        return self._sent_ms >= self._done_ms + self._segment_ms

    async def is_stalled(self) -> bool:
        """Say whether an answer is overdue and the server does not even answer a health check."""
        now_s = self._now_s()
        if self._due_s is None or now_s - self._asked_s < self._timeout_s:
            return False
        if now_s - self._due_s >= LONGEST_SILENCE_S:
            return True
        self._asked_s = now_s
        return not await self._answers()
