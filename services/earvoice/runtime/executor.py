"""One thread that computes, so that the event loop only moves messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from earvoice.runtime.engine_load import EngineLoad

Value = TypeVar("Value")


@dataclass(frozen=True)
class Computation(Generic[Value]):
    """What a computation gave and what it took.

    Attributes:
        value: the callable's result.
        queue_ms: milliseconds from the call to the thread taking it.
        compute_ms: milliseconds in the thread.
    """

    value: Value
    queue_ms: float
    compute_ms: float


class EngineThread:
    """Runs computations one at a time, first come first served.

    Args:
        name: the thread's name, for profilers.

    Attributes:
        load: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        # Each has one writer: the event loop, and the thread.
        self._submitted_count = 0
        self._taken_count = 0
        self.load = EngineLoad(lambda: self._submitted_count - self._taken_count)

    async def run(self, compute: Callable[[], Value]) -> Computation[Value]:
        """Compute in the thread.

        A cancelled caller still waits until its computation has ended: what it computes on must
        not be used by anyone else before.

        Raises:
            Exception: whatever ``compute`` raises.
        """
        submitted = time.perf_counter()
        self._submitted_count += 1
        future = asyncio.get_running_loop().run_in_executor(
            self._executor, self._timed, compute, submitted
        )
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    def close(self) -> None:
        """End the thread after what is queued."""
        self._executor.shutdown(wait=True)

    def _timed(self, compute: Callable[[], Value], submitted: float) -> Computation[Value]:
        started = time.perf_counter()
        self._taken_count += 1
        value = compute()
        ended = time.perf_counter()
        self.load.note(ended - started, 1)
        return Computation(value, (started - submitted) * 1000, (ended - started) * 1000)
