"""Which losses a session outlives, and how long it tries."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from earvoice.client.errors import TranslationError

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0

_PASSING_REASONS = ("NOT_READY", "BACKEND_UNAVAILABLE")
_TRANSPORT_CODES = ("UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN", "ABORTED")
_BUSY_REASON = "SESSION_LIMIT"
_TOKEN_REASON = "INVALID_RESUME_TOKEN"  # noqa: S105 - an error's name
_OTHER_REPLICA = ("model", "version")
"""Causes for which another replica may take the token: servers are being replaced by newer ones."""


def is_loss(error: TranslationError) -> bool:
    """Say whether a session may go on elsewhere after an error: the server or the way is gone.

    A proxy reports a server that died with any of several statuses, none with a reason of ours.
    """
    if error.reason:
        return error.passing and error.reason in _PASSING_REASONS
    return error.code in _TRANSPORT_CODES


def _may_pass(error: TranslationError) -> bool:
    """Say whether a session that is lost already may yet go on after an error."""
    if error.reason == _TOKEN_REASON:
        return error.metadata.get("cause") in _OTHER_REPLICA
    return error.reason == _BUSY_REASON or is_loss(error)


class Reconnection:
    """Counts attempts since the session made progress last.

    Args:
        limit_s: seconds to try for; 0 never tries.
        now_s: a monotonic clock in seconds.
        spread: gives a factor between 0 and 1, so that not all clients come back at once.

    Attributes:
        loss: what ended the session; None while it runs.
        attempt_count: since then.
    """

    def __init__(
        self,
        limit_s: float,
        now_s: Callable[[], float],
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._limit_s = limit_s
        self._now_s = now_s
        self._spread = spread
        self._lost_s = 0.0
        self.loss: TranslationError | None = None
        self.attempt_count = 0

    def note_progress(self) -> None:
        """The session runs, and has come further than where it was lost."""
        self.loss = None
        self.attempt_count = 0

    def pause_s(self, error: TranslationError) -> float | None:
        """Return how long to wait before the next attempt; None where there shall be none.

        Args:
            error: that ended the session or the last attempt.
        """
        if not (_may_pass(error) if self.loss else is_loss(error)):
            return None
        if self.loss is None:
            self.loss, self._lost_s = error, self._now_s()
        pause_s = self._next_pause_s(error.retry_after_s)
        if self.waited_s + pause_s >= self._limit_s:
            return None
        self.attempt_count += 1
        return pause_s

    @property
    def waited_s(self) -> float:
        """Seconds since the loss."""
        return self._now_s() - self._lost_s

    def _next_pause_s(self, asked_s: float | None) -> float:
        """The first attempt is made at once: most often another server stands ready."""
        if not self.attempt_count:
            return 0.0
        doubled_s = FIRST_PAUSE_S * 2.0 ** min(self.attempt_count - 1, 10)
        pause_s = min(LONGEST_PAUSE_S, max(doubled_s, asked_s or 0.0))
        return pause_s * (0.5 + self._spread() / 2)
