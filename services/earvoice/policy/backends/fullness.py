"""What a full replica has said, remembered: to ask again takes time from those whom it serves."""

from __future__ import annotations

import time
from collections.abc import Callable

from earvoice.runtime.errors import EarvoiceError

FULL_S = 1.0


class Fullness:
    """One replica's answer that it has no room, believed for `FULL_S`.

    A session of another policy replica may end meanwhile, and behind a proxy another replica may
    have room: that long it is not noticed.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answer: EarvoiceError | None = None
        self._until_s = 0.0

    @property
    def answer(self) -> EarvoiceError | None:
        """The answer that is still believed; None where the replica is to be asked."""
        return self._answer if self._clock() < self._until_s else None

    def note(self, answer: EarvoiceError) -> None:
        """Remember that it is full."""
        self._answer = answer
        self._until_s = self._clock() + FULL_S

    def forget(self) -> None:
        """Ask it again: a session has left it."""
        self._answer = None
