"""One stream to a replica: turns the transport's errors, and silence, into errors of ours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import grpc

from earvoice.api.v1 import types_pb2
from earvoice.policy.backends.replicas import Replica
from earvoice.policy.timeline import HopTimings
from earvoice.runtime.errors import (
    BackendUnavailableError,
    EarvoiceError,
    IdleError,
    NotReadyError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from earvoice.runtime.session_limit import RETRY_AFTER_MS
from earvoice.runtime.status import remote_error

Result = TypeVar("Result")

_BROKEN = (grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError)
"""What grpc raises on a stream that has ended, or is about to."""

_NOT_LET_IN = (UnauthenticatedError.reason, PermissionDeniedError.reason)


class ReplicaLostError(BackendUnavailableError):
    """The transport reports a replica gone, or the replica no longer answers."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_ms=RETRY_AFTER_MS)


def is_loss(error: EarvoiceError) -> bool:
    """Say whether a running session can go on elsewhere: its replica is gone or leaving.

    Or it has given us up: we were silent while we waited for another service's replacement.
    """
    passing = (NotReadyError.reason, IdleError.reason)
    return isinstance(error, ReplicaLostError) or error.reason in passing


@dataclass(frozen=True)
class BackendTimeouts:
    """How long a session waits, in seconds.

    Attributes:
        answer_s: for an answer from a replica that does not answer health checks either: it is
            stopped or cut off.
        slow_answer_s: for an answer from a replica that does answer them: it is slow.
        replacement_s: for another replica, once one is lost.
        opening_s: for a first replica, before a client is refused.
    """

    answer_s: float = 3.0
    slow_answer_s: float = 30.0
    replacement_s: float = 10.0
    opening_s: float = 2.0


class BackendCall:
    """One stream. A status of ours is passed on; any other means that the replica is lost.

    So does silence while a replica owes an answer or takes no more requests. After half of
    `answer_s` its health is checked. One that answers the check within the other half is slow and
    is waited for, within limits; a process that is stopped or cut off stays silent.

    Args:
        traceparents: which span a session's messages belong to now, by service; empty for none.
    """

    def __init__(
        self,
        replica: Replica,
        traceparents: Mapping[str, str],
        loop_lag_s: Callable[[], float],
        timeouts: BackendTimeouts,
    ) -> None:
        self._replica = replica
        self._call = replica.open_call()
        self._service = replica.kind.name
        self._traceparents = traceparents
        self.clock = partial(request_clock, loop_lag_s)
        self._timeouts = timeouts
        self._silence: ReplicaLostError | None = None
        # A second write while one is under way fails, and gRPC then takes the stream for ended,
        # though it is not: cancelling no longer works, and the replica keeps the session.
        self._writing = asyncio.Lock()

    async def write(self, request: Any) -> None:
        request.trace_context.traceparent = self._traceparents[self._service]
        async with self._writing:
            await self._answered(self._call.write(request))

    async def read(self) -> Any:
        answer = await self._answered(self._call.read())
        if answer is grpc.aio.EOF:
            raise self._gone()
        return answer

    async def ask(self, request: Any) -> Any:
        await self.write(request)
        return await self.read()

    async def close(self) -> None:
        """End the stream and wait until the service has, too; what still comes is dropped."""
        async with self._writing:
            await self._answered(self._call.done_writing())
        while await self._answered(self._call.read()) is not grpc.aio.EOF:
            pass

    def cancel(self) -> None:
        self._call.cancel()

    async def _answered(self, operation: Awaitable[Result]) -> Result:
        loop = asyncio.get_running_loop()
        watching: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(None) as limit:

                def watch() -> None:
                    nonlocal watching
                    watching = loop.create_task(self._give_up_when_silent(limit))

                # Nearly always the answer comes long before a health check is due.
                timer = loop.call_later(self._timeouts.answer_s / 2, watch)
                try:
                    return await operation
                except _BROKEN as error:
                    raise await self._ended() from error
                finally:
                    timer.cancel()
                    if watching is not None:
                        watching.cancel()
        except TimeoutError:
            self._call.cancel()
            raise self._silence or self._gone() from None
        except asyncio.CancelledError:
            # If another wait has given the stream up, this one ends as if we were cancelled.
            task = asyncio.current_task()
            if self._silence is None or task is None or task.cancelling():
                raise
            raise self._silence from None

    async def _give_up_when_silent(self, limit: asyncio.Timeout) -> None:
        # Cancelling the stream is not enough: a write that waits for a connection would stay.
        self._silence = await silence_of(self._replica, self._timeouts)
        limit.reschedule(asyncio.get_running_loop().time())

    async def _ended(self) -> EarvoiceError:
        """Return why the stream has ended; a failed write or read does not say."""
        status = grpc.aio.AioRpcError(
            await self._call.code(),
            await self._call.initial_metadata(),
            await self._call.trailing_metadata(),
        )
        told = remote_error(status)
        if told is not None and told.reason in _NOT_LET_IN:
            # This is about our own token, not the client's.
            return ReplicaLostError(f"the {self._service} refuses this server's credentials")
        return told or self._gone()

    def _gone(self) -> ReplicaLostError:
        return ReplicaLostError(f"the {self._service} is gone")


async def silence_of(replica: Replica, timeouts: BackendTimeouts) -> ReplicaLostError:
    """Return once a replica that has not answered for half of `answer_s` has to be given up."""
    loop = asyncio.get_running_loop()
    half_s = timeouts.answer_s / 2
    limit_s = loop.time() + timeouts.slow_answer_s - half_s
    unanswered = f"the {replica.kind.name} has not answered for"
    while await replica.is_alive(half_s):
        if loop.time() >= limit_s:
            return ReplicaLostError(f"{unanswered} {timeouts.slow_answer_s:g} s, though it runs")
        await asyncio.sleep(half_s)
    return ReplicaLostError(f"{unanswered} {timeouts.answer_s:g} s")


def request_clock(loop_lag_s: Callable[[], float]) -> Callable[[types_pb2.Timings], HopTimings]:
    """Start a request's clock; called with the service's timings, it says where the time went.

    Args:
        loop_lag_s: how long, so far, long turns have kept the event loop from its sockets, in
            seconds. An answer waits for such a turn to end: our own time, not the network's.
    """
    lag_before_s, sent_s = loop_lag_s(), time.perf_counter()

    def timings(told: types_pb2.Timings) -> HopTimings:
        passed_ms = (time.perf_counter() - sent_s) * 1000
        lag_ms = (loop_lag_s() - lag_before_s) * 1000
        outside_ms = max(0.0, passed_ms - told.elapsed_ms)
        return HopTimings(passed_ms - min(lag_ms, outside_ms), told.elapsed_ms, told.compute_ms)

    return timings
