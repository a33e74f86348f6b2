"""Continuous batching: one thread, one prefill or one batched step at a time."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from earvoice.decoder.generation import EndReason, Event, Generation
from earvoice.decoder.strategy import Preparation, Progress, Strategy
from earvoice.runtime.engine import EngineLoad

_LOG = logging.getLogger("earvoice.decoder.engine")


class DecoderEngine:
    """Computes all sessions' generations in one thread.

    Between two computations it takes new generations and ends those asked to stop; then it begins
    at most one waiting generation (a prefill), then steps all running ones in one batch. A
    generation that needs a preparation first has it stepped with the others, then waits again. The
    engine never waits to fill a batch: it sleeps only when nothing can be computed.

    Args:
        clock_s: monotonic seconds; the same clock that requests are stamped with.
    """

    def __init__(self, strategy: Strategy, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._strategy = strategy
        self._clock_s = clock_s
        self._condition = threading.Condition()
        self._arrived: deque[Generation] = deque()
        self._waiting: deque[Generation] = deque()
        self._running: dict[Generation, Any] = {}
        self._posts: list[Event] = []
        self.load = EngineLoad(lambda: len(self._arrived) + len(self._waiting))
        self._closing = False
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="decoder-engine", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def close(self) -> None:
        """End the thread after the current computation; unfinished generations end as CLOSED."""
        self._closing = True
        self.wake()
        await asyncio.to_thread(self._thread.join)

    def submit(self, generation: Generation) -> None:
        """Queue a generation; its outbox gets its steps and then exactly one end."""
        generation.outbox.expect_generation()
        with self._condition:
            if not self._closed:
                self._arrived.append(generation)
                self._condition.notify()
                return
        self._end(generation, EndReason.CLOSED)
        self._flush()

    def wake(self) -> None:
        """Look again: an outbox has room, or a generation was asked to stop."""
        with self._condition:
            self._condition.notify()

    def _work(self) -> None:
        while self._wait_for_work():
            try:
                self._sweep()
                self._begin_next()
                self._step_all()
            except Exception as error:  # noqa: BLE001 - a bug ends sessions, not the engine
                _LOG.exception("the engine failed; all its generations end")
                self._end_all(EndReason.ERROR, error)
            self._flush()
        with self._condition:
            self._closed = True
            self._waiting.extend(self._arrived)
            # From here on `submit`, in the event loop, ends generations that come too late.
            self._end_all(EndReason.CLOSED)
            self._flush()

    def _wait_for_work(self) -> bool:
        """Sleep until something can be computed or must end; False when the engine closes."""
        with self._condition:
            self._condition.wait_for(self._has_work)
            self._waiting.extend(self._arrived)
            self._arrived.clear()
        return not self._closing

    def _has_work(self) -> bool:
        return (
            self._closing
            or bool(self._arrived or self._waiting)
            or any(item.stop_reason or not item.outbox.full for item in self._running)
        )

    def _sweep(self) -> None:
        for generation in (*self._running, *self._waiting):
            if generation.stop_reason:
                self._end(generation, generation.stop_reason)

    def _begin_next(self) -> None:
        if not self._waiting:
            return
        generation, started_s = self._waiting[0], self._clock_s()
        progress = Progress([])
        try:
            run = self._strategy.prepare(generation.states, generation.prompt.forced)
            if run is None or run.is_over:
                run, progress = self._strategy.begin(generation.states, generation.prompt)
        except Exception as error:  # noqa: BLE001 - one session's failure must not touch others
            self._end(generation, EndReason.ERROR, error)
            return
        self._waiting.popleft()
        self._running[generation] = run
        self._accept([generation], [progress], started_s)
        # The caller gets the prefill's tokens before the step that follows is computed.
        self._flush()

    def _step_all(self) -> None:
        """Step every generation whose caller keeps reading, in one batch."""
        batch = [generation for generation in self._running if not generation.outbox.full]
        if not batch:
            return
        started_s = self._clock_s()
        try:
            results = self._strategy.step([self._running[item] for item in batch])
        except Exception as error:  # noqa: BLE001 - one session's failure must not touch others
            if len(batch) == 1:
                self._end(batch[0], EndReason.ERROR, error)
                return
            _LOG.exception("a batch failed; its sessions are stepped one by one")
            self._step_alone(batch)
            return
        self._accept(batch, results, started_s)

    def _step_alone(self, batch: Sequence[Generation]) -> None:
        """Find out whose step fails; the others go on."""
        for generation in batch:
            started_s = self._clock_s()
            try:
                results = self._strategy.step([self._running[generation]])
            except Exception as error:  # noqa: BLE001 - one session's failure must not touch others
                self._end(generation, EndReason.ERROR, error)
            else:
                self._accept([generation], results, started_s)

    def _accept(
        self, batch: Sequence[Generation], results: Sequence[Progress], started_s: float
    ) -> None:
        now_s = self._clock_s()
        self.load.record(now_s - started_s, len(batch))
        prepared: list[Generation] = []
        for generation, progress in zip(batch, results, strict=True):
            generation.compute(started_s, now_s, len(batch))
            run = self._running[generation]
            if isinstance(run, Preparation):
                event, reason = None, None
                if run.is_over:
                    prepared.append(generation)
            else:
                event, reason = generation.accept(progress, now_s)
            if event is not None:
                self._post(event)
            if reason is not None:
                self._end(generation, reason)
            elif generation.outbox.full:
                generation.pause(now_s)
        for generation in reversed(prepared):
            del self._running[generation]
            self._waiting.appendleft(generation)

    def _end(
        self, generation: Generation, reason: EndReason, failure: Exception | None = None
    ) -> None:
        self._running.pop(generation, None)
        if generation in self._waiting:
            self._waiting.remove(generation)
        self._post(generation.end(reason, self._clock_s(), failure))

    def _end_all(self, reason: EndReason, failure: Exception | None = None) -> None:
        for generation in (*self._running, *self._waiting):
            self._end(generation, reason, failure)

    def _post(self, event: Event) -> None:
        event.generation.outbox.announce()
        self._posts.append(event)

    def _flush(self) -> None:
        if self._posts and self._loop is not None:
            self._loop.call_soon_threadsafe(_deliver, self._posts)
            self._posts = []


def _deliver(posts: Sequence[Event]) -> None:
    for event in posts:
        event.generation.outbox.deliver(event)
