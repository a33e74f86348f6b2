"""How many sessions a process takes at once, and how it drains."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from earvoice.runtime.errors import EarvoiceError, NotReadyError, SessionLimitError
from earvoice.runtime.identity import current_tenant
from earvoice.runtime.return_times import ReturnTimes

RETRY_AFTER_MS = 1000

TENANT_LIMIT = "TENANT_LIMIT"
"""Why a session is not taken whose tenant has as many as it may; its caller hears SESSION_LIMIT."""


class SessionLimit:
    """Counts sessions, refuses the one too many, and every one once it is closed.

    Args:
        limit: sessions at once, 1 or more; ``auto`` stands for 1 until it is set anew.
        tenant_limit: sessions of one tenant at once; 0 for no such limit.

    Attributes:
        limit: as given; may be set anew while sessions run, and none of them is ended.
        active: sessions held now.
        refused: sessions that were not taken, by the error's reason or ``TENANT_LIMIT``.
    """

    def __init__(self, limit: int | Literal["auto"], tenant_limit: int = 0) -> None:
        self.limit = 1 if limit == "auto" else limit
        self._tenant_limit = tenant_limit
        self._active_by_tenant: Counter[str] = Counter()
        self._return_times = ReturnTimes()
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
        tenant = current_tenant()
        if refusal := self._refusal(tenant):
            reason, error = refusal
            self.refused[reason] += 1
            raise error
        self.active += 1
        self._active_by_tenant[tenant] += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.active -= 1
            self._active_by_tenant -= Counter([tenant])
            if self.active == 0:
                self._idle.set()

    async def drain(self) -> None:
        """Refuse new sessions and return when the last one has ended."""
        self._closed = True
        await self._idle.wait()

    def _refusal(self, tenant: str) -> tuple[str, EarvoiceError] | None:
        """Return why a session is not taken, and what its caller is told."""
        if self._closed:
            draining = NotReadyError("this server is draining", retry_after_ms=RETRY_AFTER_MS)
            return draining.reason, draining
        if self.active >= self.limit:
            return SessionLimitError.reason, self._full("sessions", self.limit)
        if self._tenant_limit and self._active_by_tenant[tenant] >= self._tenant_limit:
            return TENANT_LIMIT, self._full("sessions of this tenant", self._tenant_limit)
        return None

    def _full(self, what: str, limit: int) -> SessionLimitError:
        message = f"all {limit} {what} are taken"
        later_ms = self._return_times.next_ms()
        return SessionLimitError(message, retry_after_ms=later_ms, limit=str(limit))
