"""One session's life: commands in, events out, one log line at its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from earvoice.decoder.command import (
    Command,
    GenerateCommand,
    HaltCommand,
    OpenCommand,
    StatesCommand,
)
from earvoice.decoder.event import Ended, EndReason, Event, Opened
from earvoice.decoder.generation_trace import GenerationTrace
from earvoice.decoder.outbox import Outbox
from earvoice.decoder.session import DecodeSession
from earvoice.runtime.errors import (
    EarvoiceError,
    IdleError,
    NotReadyError,
    SlowReaderError,
    find_error,
)

_LOG = logging.getLogger("earvoice.decoder")

Send = Callable[[Event], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a session waits for its caller.

    Attributes:
        idle_s: seconds without a command while nothing is generated.
        slow_reader_s: seconds that one answer may wait to be read.
    """

    idle_s: float
    slow_reader_s: float


@dataclass(slots=True)
class _Tally:
    """What the log line at the end says."""

    steps: int = 0
    draft_accepted: int = 0
    near_ties: int = 0
    compute_ms: float = 0.0


class DecodeStream:
    """Moves commands to the session and events to the caller.

    Args:
        session: checks commands and starts generations.
        outbox: where the session's events come from.
        patience: how long it waits for the caller.
        trace: makes spans of traced generations.

    Attributes:
        trace_id: trace to name in the log; empty if none is known.
    """

    def __init__(
        self, session: DecodeSession, outbox: Outbox, patience: Patience, trace: GenerationTrace
    ) -> None:
        self._session = session
        self._trace = trace
        self._outbox = outbox
        self._patience = patience
        self._active_at_s = time.monotonic()
        self._writing_since_s: float | None = None
        self._tally = _Tally()
        self.trace_id = ""

    async def run(self, commands: AsyncIterator[Command], send: Send) -> None:
        """Serve until the commands end and the last generation with them.

        Args:
            commands: in the caller's order.
            send: writes one event to the caller, and returns when there is room for the next.

        Raises:
            EarvoiceError: the caller broke the protocol, or did not write or read for too long.
            Exception: a computation failed.
        """
        started_s, status = time.monotonic(), "CANCELLED"
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(commands))
                watch = tasks.create_task(self._watch())
                await self._write(send)
                watch.cancel()
            status = "OK"
        except BaseExceptionGroup as group:
            ours = find_error(group)
            status = ours.reason if ours else "INTERNAL"
            raise
        finally:
            self._session.close()
            await self._outbox.settled()
            self._log(status, time.monotonic() - started_s)

    def end(self, error: Exception) -> None:
        """End the session with an error, after the events that wait."""
        self._outbox.fail(error)

    async def _read(self, commands: AsyncIterator[Command]) -> None:
        try:
            async for command in commands:
                self._active_at_s = time.monotonic()
                await self._apply(command)
            self._outbox.finish()
        except EarvoiceError as error:
            self._outbox.fail(error)

    async def _apply(self, command: Command) -> None:
        match command:
            case OpenCommand():
                self._session.open(command)
                self._outbox.announce()
                self._outbox.deliver(Opened())
            case StatesCommand():
                self._session.replace_states(command)
            case GenerateCommand():
                await self._outbox.room()
                self._session.generate(command)
            case HaltCommand():
                self._session.halt(command)

    async def _write(self, send: Send) -> None:
        while (event := await self._outbox.take()) is not None:
            if isinstance(event, Ended) and event.reason is EndReason.CLOSED:
                raise NotReadyError("this server is stopping", retry_after_ms=1000)
            self._writing_since_s = time.monotonic()
            await send(event)
            self._active_at_s = time.monotonic()
            self._writing_since_s = None
            if isinstance(event, Ended):
                self._count(event)
                self._trace.note(event)
                if event.failure is not None:
                    raise event.failure

    async def _watch(self) -> None:
        """End the session when its caller has been waited for too long.

        One sleeping task a session: a timeout around every single wait costs more than the wait.
        So an answer that is not read is noticed after one to two times the patience for it.
        """
        while True:  # noqa: ASYNC110 - what is waited for is the time itself
            await asyncio.sleep(max(0.0, self._check_patience() - time.monotonic()))

    def _check_patience(self) -> float:
        """Return the moment at which patience may end next, on the monotonic clock in seconds."""
        now_s, patience = time.monotonic(), self._patience
        if self._writing_since_s is not None:
            limit_s = self._writing_since_s + patience.slow_reader_s
            if now_s >= limit_s:
                raise SlowReaderError(f"an answer was not read for {patience.slow_reader_s:g} s")
            return limit_s
        limit_s = self._active_at_s + patience.idle_s
        if now_s < limit_s:
            return min(limit_s, now_s + patience.slow_reader_s)
        if not self._outbox.generating:
            raise IdleError(f"no command came for {patience.idle_s:g} s; allowed: less")
        return now_s + patience.slow_reader_s

    def _count(self, event: Ended) -> None:
        self._tally.steps += event.step_count
        self._tally.draft_accepted += event.draft_accepted_count
        self._tally.near_ties += event.near_tie_count
        self._tally.compute_ms += event.spent.compute_ms

    def _log(self, status: str, duration_s: float) -> None:
        _LOG.info(
            "session ended",
            extra={
                "session_id": self._session.session_id,
                "trace_id": self.trace_id,
                "status": status,
                "duration_s": round(duration_s, 3),
                "generations": self._session.generation_count,
                "steps": self._tally.steps,
                "draft_accepted": self._tally.draft_accepted,
                "near_ties": self._tally.near_ties,
                "compute_ms": round(self._tally.compute_ms, 1),
            },
        )
