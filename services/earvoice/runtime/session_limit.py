"""How many sessions a process takes at once, and how it drains."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from earvoice.runtime.errors import NotReadyError, SessionLimitError

RETRY_AFTER_MS = 1000


class SessionLimit:
    """Counts sessions, refuses the one too many, and every one once it is closed.

    Args:
        limit: sessions at once, 1 or more.

    Attributes:
        active: sessions held now.
        refused: sessions that were not taken, by the error's reason.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.active = 0
        self.refused: Counter[str] = Counter()
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Hold one session for as long as the block runs.

        Raises:
            SessionLimitError: every session is taken.
            NotReadyError: the process is draining.
        """
        if self._closed:
            self.refused[NotReadyError.reason] += 1
            raise NotReadyError("this server is draining", retry_after_ms=RETRY_AFTER_MS)
        if self.active >= self.limit:
            self.refused[SessionLimitError.reason] += 1
            raise SessionLimitError(
                f"all {self.limit} sessions are taken",
                retry_after_ms=RETRY_AFTER_MS,
                limit=str(self.limit),
            )
        self.active += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.active -= 1
            if self.active == 0:
                self._idle.set()

    async def drain(self) -> None:
        """Refuse new sessions and return when the last one has ended."""
        self._closed = True
        await self._idle.wait()
