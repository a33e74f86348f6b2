"""Events on their way to one client: bounded, in order, only the newest tail."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from earvoice.policy.event import Event, TailChanged

CAPACITY = 64


class Outbox:
    """A queue between a session and its client's stream."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._changed = asyncio.Condition()
        self._is_closed = False
        self._error: Exception | None = None

    async def put(self, event: Event, *, last: bool = False) -> None:
        """Add an event; waits while the client is slow. A newer tail replaces a waiting one.

        Void once nothing more comes: what a session that has failed still finds is not sent.

        Args:
            event: what happened.
            last: nothing comes after it.
        """
        async with self._changed:
            if isinstance(event, TailChanged):
                self._drop_tails()
            await self._changed.wait_for(lambda: self._is_closed or len(self._events) < CAPACITY)
            if self._is_closed:
                return
            self._events.append(event)
            self._is_closed = last
            self._changed.notify_all()

    async def announce(self, event: Event) -> None:
        """Add an event that must not wait for a slow client; void once nothing more comes."""
        async with self._changed:
            if not self._is_closed:
                self._events.append(event)
                self._changed.notify_all()

    async def close(self, error: Exception | None = None) -> None:
        """Say that nothing more comes, and why if something failed."""
        async with self._changed:
            if not self._is_closed:
                self._is_closed = True
                self._error = error
            self._changed.notify_all()

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events; after the last one raise the error that closed it, if any."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._events or self._is_closed)
                if not self._events:
                    if self._error is not None:
                        raise self._error
                    return
                event = self._events.popleft()
                self._changed.notify_all()
            yield event

    def _drop_tails(self) -> None:
        kept = [event for event in self._events if not isinstance(event, TailChanged)]
        self._events = deque(kept)
