"""One generation: what was asked for, what it has produced, where its time went, why it ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from earvoice.decoder.strategy import PredictedToken, Progress, Prompt, StateBlock

_RUNNING_AND_NEXT = 2


class EndReason(IntEnum):
    """Why a generation ended, numbered as on the wire; CLOSED is never sent."""

    END_OF_SEQUENCE = 1
    LIMIT = 2
    HALTED = 3
    REPLACED = 4
    ERROR = 5
    CLOSED = 100


@dataclass(frozen=True, slots=True)
class Event:
    """A generation's progress or its end, for the caller, and where the time went until then.

    Attributes:
        progress: what has become known; None for the end.
        first_index: position of the progress's first token in the hypothesis.
        queue_ms: time spent waiting for the engine since the request was read, without pauses.
        compute_ms: time of the computations that the generation was part of.
    """

    generation: Generation
    progress: Progress | None
    first_index: int
    queue_ms: float
    compute_ms: float
    batch_size: int


@dataclass(eq=False, repr=False)
class Generation:
    """What one generation is to do, and how far it has come.

    The event loop calls `stop`; until the generation ends, the engine's thread owns all the rest.

    Attributes:
        max_new_tokens: most tokens after the prefix.
        prefix_length: tokens of the forced prefix; the first new token has this index.
        read_at_s: monotonic clock when the request was read, in seconds.
        end_reason: None until it has ended.
        failure: the exception that ended it, if one did.
        source: the source-language text that it translates, once that is known.
        prefill_s, prefilled_s, ended_s: when its first computation began and ended, and when the
            generation ended, on the monotonic clock; all equal where nothing was computed.
    """

    generation_id: int
    states: StateBlock
    prompt: Prompt
    max_new_tokens: int
    end_token: int
    outbox: Outbox
    prefix_length: int = 0
    read_at_s: float = 0.0
    traceparent: str = ""
    stop_reason: EndReason | None = None
    end_reason: EndReason | None = None
    failure: Exception | None = None
    step_count: int = 0
    draft_accepted_count: int = 0
    near_tie_count: int = 0
    compute_ms: float = 0.0
    batch_size: int = 1
    largest_batch: int = 0
    prefill_s: float | None = None
    prefilled_s: float = 0.0
    ended_s: float = 0.0
    source: list[PredictedToken] = field(default_factory=list)
    _paused_ms: float = 0.0
    _paused_at_s: float | None = None

    def stop(self, reason: EndReason) -> None:
        """Ask the engine to end it before its next step; the first reason counts."""
        self.stop_reason = self.stop_reason or reason

    def pause(self, now_s: float) -> None:
        """Record that it is not stepped from now on, because its caller does not read."""
        if self._paused_at_s is None:
            self._paused_at_s = now_s

    def compute(self, started_s: float, now_s: float, batch_size: int) -> None:
        if self._paused_at_s is not None:
            self._paused_ms += (started_s - self._paused_at_s) * 1000
            self._paused_at_s = None
        self.compute_ms += (now_s - started_s) * 1000
        self.batch_size = batch_size
        self.largest_batch = max(self.largest_batch, batch_size)
        if self.prefill_s is None:
            self.prefill_s, self.prefilled_s = started_s, now_s

    def accept(self, progress: Progress, now_s: float) -> tuple[Event | None, EndReason | None]:
        """Record a computation's progress; tokens after the limit are cut off."""
        self.near_tie_count += progress.near_tie
        self.source = progress.source or self.source
        first = self.step_count
        if progress.beam:
            tokens, full = progress.beam[0].tokens, True
        else:
            tokens = progress.tokens
            del tokens[self.max_new_tokens - first :]
            full = first + len(tokens) >= self.max_new_tokens
        if not tokens:
            return None, None
        self.step_count += len(tokens)
        self.draft_accepted_count += sum(token.from_draft for token in tokens)
        self.near_tie_count += sum(token.near_tie for token in tokens)
        event = self._event(progress, self.prefix_length + first, now_s)
        if tokens[-1].token == self.end_token:
            return event, EndReason.END_OF_SEQUENCE
        return event, EndReason.LIMIT if full else None

    def end(self, reason: EndReason, now_s: float, failure: Exception | None = None) -> Event:
        self.end_reason, self.failure, self.ended_s = reason, failure, now_s
        if self.prefill_s is None:
            self.prefill_s = self.prefilled_s = now_s
        return self._event(None, self.prefix_length + self.step_count, now_s)

    def _event(self, progress: Progress | None, first_index: int, now_s: float) -> Event:
        paused_ms = self._paused_ms
        if self._paused_at_s is not None:
            paused_ms += (now_s - self._paused_at_s) * 1000
        queue_ms = max(0.0, (now_s - self.read_at_s) * 1000 - self.compute_ms - paused_ms)
        return Event(self, progress, first_index, queue_ms, self.compute_ms, self.batch_size)


class Outbox:
    """Events on their way to one caller, bounded.

    The engine's thread reads `full`, and calls `announce` for each event that it hands to the
    event loop; the event loop calls everything else. Each counter has one writer at a time, so no
    lock is needed.

    Args:
        capacity_events: number of waiting events at which the engine pauses the generation.
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
        return self._announced - self._taken >= self._capacity_events

    @property
    def generating(self) -> bool:
        return self._unfinished > 0

    def announce(self) -> None:
        self._announced += 1

    def expect_generation(self) -> None:
        """Count a generation that will end with exactly one event without progress."""
        self._unfinished += 1
        self._refresh()

    def deliver(self, event: Event) -> None:
        """Accept an announced event; after a failure only the end of a generation counts."""
        if event.progress is None:
            self._unfinished -= 1
        if self._failure is None:
            self._events.append(event)
        self._refresh()

    def finish(self) -> None:
        """Say that no more requests will come: `take` ends after the last generation."""
        self._finishing = True
        self._refresh()

    def fail(self, error: Exception) -> None:
        """End the session with an error, after the waiting events; the first error counts."""
        self._failure = self._failure or error
        self._refresh()

    async def take(self) -> Event | None:
        """Wait for the next event; return None after the last, or raise what `fail` was given."""
        await self._arrived.wait()
        if not self._events:
            if self._failure is not None:
                raise self._failure
            return None
        event = self._events.popleft()
        self._taken += 1
        self._refresh()
        # Checked after the event is counted as taken: an engine that found the outbox full before
        # is woken, and one that fills it from now on sees the room.
        if self._announced - self._taken >= self._capacity_events - 1:
            self._on_room()
        return event

    async def room(self) -> None:
        """Wait until one more generation may be asked for: room, and at most one unfinished."""
        await self._room.wait()

    async def settled(self) -> None:
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
