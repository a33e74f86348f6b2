"""The thread that computes, so that the event loop only moves messages; how busy both are."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from earvoice.runtime.machine import return_freed_memory

LONG_TURN_S = 0.005
"""A turn normally takes a millisecond for all sessions; a longer one keeps the others waiting."""

REST_S = 10.0
"""Longer than between two segments: an engine that has computed nothing for so long is at rest."""

LOAD_WINDOW_S = 15
"""As often as our Prometheus collects: then each computation is part of one collection."""

Value = TypeVar("Value")


class EngineLoad:
    """Counts an engine's work. The engine's thread writes, others read.

    Attributes:
        busy_s: seconds computed so far. A computation counts when it has ended.
        on_batch: called after every computation with how many sessions shared it; may be None.
    """

    def __init__(
        self, waiting_count: Callable[[], int], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.waiting_count = waiting_count
        self._clock_s = clock_s
        self.busy_s = 0.0
        self._began_s = clock_s()
        # For each of the last seconds its number and what was computed in it.
        self._by_second = [(-1, 0.0)] * LOAD_WINDOW_S
        self.on_batch: Callable[[int], None] | None = None

    def record(self, computed_s: float, batch_size: int) -> None:
        self.busy_s += computed_s
        second = int(self._clock_s())
        place = second % LOAD_WINDOW_S
        seen, earlier_s = self._by_second[place]
        self._by_second[place] = second, computed_s + (earlier_s if seen == second else 0.0)
        if self.on_batch is not None:
            self.on_batch(batch_size)

    def busy_ratio(self) -> float:
        """Return the share of the last `LOAD_WINDOW_S` spent computing, 0 to 1."""
        now_s = self._clock_s()
        first = int(now_s) - LOAD_WINDOW_S + 1
        computed_s = sum(busy_s for second, busy_s in self._by_second if second >= first)
        passed_s = now_s - max(first, self._began_s)
        return min(1.0, computed_s / passed_s) if passed_s > 0 else 0.0


@asynccontextmanager
async def returning_memory(load: EngineLoad) -> AsyncIterator[None]:
    """Meanwhile, whenever an engine comes to rest, return what its computations have freed.

    Segments of any length come and go, and the allocator keeps more and more of what they took.
    """

    async def watch() -> None:
        seen_s, returned_s = load.busy_s, -1.0  # loading the model has freed some, too
        while True:
            await asyncio.sleep(REST_S)
            rests, seen_s = load.busy_s == seen_s, load.busy_s
            if rests and seen_s != returned_s:
                await asyncio.to_thread(return_freed_memory)
                returned_s = seen_s

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


async def to_its_end(work: Awaitable[Value]) -> Value:
    """Wait for work, such as a thread's; if cancelled, until it ends: it may be using something."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait({working})
        working.exception()  # nobody is left to be told
        raise


class EngineThread:
    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        # Each has one writer: the event loop, and the thread.
        self._submitted_count = 0
        self._taken_count = 0
        self.load = EngineLoad(lambda: self._submitted_count - self._taken_count)

    async def run(self, compute: Callable[[], Value]) -> tuple[Value, float, float]:
        """Compute in the thread.

        A cancelled caller still waits until its computation has ended, if it has begun: until then
        nobody else may use the data that it computes on.

        Returns:
            The result; milliseconds until the thread took it, and in the thread.
        """
        submitted = time.perf_counter()
        self._submitted_count += 1
        computation = self._executor.submit(self._timed, compute, submitted)
        future = asyncio.wrap_future(computation)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if computation.cancel():
                self._submitted_count -= 1
            else:
                await asyncio.wait([future])
            raise

    def close(self) -> None:
        self._executor.shutdown(wait=True)

    def _timed(self, compute: Callable[[], Value], submitted: float) -> tuple[Value, float, float]:
        started = time.perf_counter()
        self._taken_count += 1
        value = compute()
        ended = time.perf_counter()
        self.load.record(ended - started, 1)
        return value, (started - submitted) * 1000, (ended - started) * 1000


class LoopLagSelector(selectors.DefaultSelector):
    """An event loop's selector that adds up how long the loop was kept from its sockets.

    A turn is what the loop runs between two looks at its sockets. An answer that comes meanwhile is
    read after it, so a long turn is the process's own delay and not the network's.
    """

    def __init__(self, clock_s: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._turn_s = clock_s()
        self._lag_s = 0.0

    def lag_s(self) -> float:
        return self._lag_s + _long_s(self._clock_s() - self._turn_s)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        self._lag_s += _long_s(self._clock_s() - self._turn_s)
        ready = super().select(timeout)
        self._turn_s = self._clock_s()
        return ready


def _long_s(turn_s: float) -> float:
    return turn_s if turn_s > LONG_TURN_S else 0.0
