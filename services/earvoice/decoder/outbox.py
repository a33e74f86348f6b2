"""A session's events between the engine and the stream, bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from earvoice.decoder.event import Ended, Event

_RUNNING_AND_NEXT = 2


class Outbox:
    """Events on their way to one caller.

    The engine's thread asks `full`, and counts with `announce` each event that it hands to the
    event loop; the event loop calls everything else. Each counter has one writer at a time, so no
    lock is needed.

    Args:
        capacity_events: events waiting at which the engine pauses the session's generation.
        on_room: called when a full outbox has room again.
    """

    def __init__(self, capacity_events: int, on_room: Callable[[], None]) -> None:
        self._capacity_events = capacity_events
        self._on_room = on_room
        self._events: deque[Event] = deque()
        self._announced = 0
        self._taken = 0
        self._unfinished = 0
        self._finishing = False
        self._failure: Exception | None = None
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._settled = asyncio.Event()
        self._refresh()

    @property
    def full(self) -> bool:
        """Whether as many events wait as may; from any thread."""
        return self._announced - self._taken >= self._capacity_events

    @property
    def generating(self) -> bool:
        """Whether a generation has not ended yet."""
        return self._unfinished > 0

    def announce(self) -> None:
        """Count an event that is on its way; from the thread that makes events."""
        self._announced += 1

    def expect_generation(self) -> None:
        """Count a generation that will end with exactly one `Ended`."""
        self._unfinished += 1
        self._refresh()

    def deliver(self, event: Event) -> None:
        """Take in an announced event; after a failure only its end is noted."""
        if isinstance(event, Ended):
            self._unfinished -= 1
        if self._failure is None:
            self._events.append(event)
        self._refresh()

    def finish(self) -> None:
        """Say that no more commands will come: `take` ends after the last generation."""
        self._finishing = True
        self._refresh()

    def fail(self, error: Exception) -> None:
        """End the session with an error, after the events that wait; the first error counts."""
        self._failure = self._failure or error
        self._refresh()

    async def take(self) -> Event | None:
        """Wait for the next event; None after the last.

        Raises:
            Exception: what `fail` was given.
        """
        await self._arrived.wait()
        if not self._events:
            if self._failure is not None:
                raise self._failure
            return None
        event = self._events.popleft()
        self._taken += 1
        self._refresh()
        # Looked at after the event is counted: whoever found the outbox full before is woken, and
        # whoever fills it from now on sees the room.
        if self._announced - self._taken >= self._capacity_events - 1:
            self._on_room()
        return event

    async def room(self) -> None:
        """Wait until one more generation may be asked for: room, and no two unfinished ones."""
        await self._room.wait()

    async def settled(self) -> None:
        """Wait until every generation has ended."""
        await self._settled.wait()

    def _refresh(self) -> None:
        over = self._failure is not None or (self._finishing and not self._unfinished)
        _switch(self._arrived, on=bool(self._events) or over)
        _switch(self._room, on=not self.full and self._unfinished < _RUNNING_AND_NEXT)
        _switch(self._settled, on=self._unfinished == 0)


def _switch(signal: asyncio.Event, *, on: bool) -> None:
    if on:
        signal.set()
    else:
        signal.clear()
