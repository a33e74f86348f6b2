"""A stream to another service, with the transport's errors turned into ours at one place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import grpc

from earvoice.policy.backends.loss import ReplicaLostError
from earvoice.policy.backends.patience import Patience
from earvoice.policy.backends.replica import Replica
from earvoice.policy.backends.request_clock import RequestClock
from earvoice.policy.backends.silence_watch import SilenceWatch
from earvoice.runtime.errors import (
    EarvoiceError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from earvoice.runtime.status import remote_error

Result = TypeVar("Result")

_BROKEN = (grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError)
"""What grpc raises on a stream that has ended, or is about to."""

_STRANGER = (UnauthenticatedError.reason, PermissionDeniedError.reason)


@dataclass(slots=True)
class MessageTrace:
    """Which span a session's messages belong to now, as traceparents; empty for none.

    Attributes:
        encoder: of those to the encoder.
        decoder: of those to the decoder.
    """

    encoder: str
    decoder: str


class BackendCall:
    """One stream. A status of ours is passed on; any other means that the replica is lost.

    So does silence: see `SilenceWatch`.

    Args:
        replica: where it goes.
        traceparent: gives the trace that the next message belongs to, or an empty string.
        starved_s: see `RequestClock`.
        patience: with silence.
    """

    def __init__(
        self,
        replica: Replica,
        traceparent: Callable[[], str],
        starved_s: Callable[[], float],
        patience: Patience,
    ) -> None:
        self._replica = replica
        self._call = replica.open_call()
        self._service = replica.kind.name
        self._traceparent = traceparent
        self._starved_s = starved_s
        self._patience = patience
        self._silence: ReplicaLostError | None = None

    def clock(self) -> RequestClock:
        """Return the clock of a request that is sent now."""
        return RequestClock(self._starved_s)

    async def write(self, request: Any) -> None:
        """Send a request with the trace.

        Raises:
            EarvoiceError: the stream has ended, or the replica is silent.
        """
        request.trace_context.traceparent = self._traceparent()
        await self._watched(self._write(request))

    async def read(self) -> Any:
        """Return the next answer.

        Raises:
            EarvoiceError: the stream has ended instead, or the replica is silent.
        """
        answer = await self._watched(self._read())
        if answer is grpc.aio.EOF:
            raise self._gone()
        return answer

    async def close(self) -> None:
        """End the stream and wait until the service has, too; what it still sends is not needed.

        Raises:
            EarvoiceError: it ended badly.
        """
        await self._watched(self._half_close())
        while await self._watched(self._read()) is not grpc.aio.EOF:
            pass

    def cancel(self) -> None:
        """End the stream at once; void after a good end."""
        self._call.cancel()

    async def _write(self, request: Any) -> None:
        try:
            await self._call.write(request)
        except _BROKEN as error:
            raise await self._ended() from error

    async def _half_close(self) -> None:
        try:
            await self._call.done_writing()
        except _BROKEN as error:
            raise await self._ended() from error

    async def _read(self) -> Any:
        try:
            return await self._call.read()
        except _BROKEN as error:
            raise await self._ended() from error

    async def _ended(self) -> EarvoiceError:
        """Return why the stream has ended; a failed write or read does not know."""
        status = grpc.aio.AioRpcError(
            await self._call.code(),
            await self._call.initial_metadata(),
            await self._call.trailing_metadata(),
        )
        told = remote_error(status)
        if told is not None and told.reason in _STRANGER:
            # It concerns our own token, and not the client's.
            return ReplicaLostError(f"the {self._service} does not let us in")
        return told or self._gone()

    def _gone(self) -> ReplicaLostError:
        return ReplicaLostError(f"the {self._service} is gone")

    async def _watched(self, work: Awaitable[Result]) -> Result:
        """Return a piece of work's result unless the replica falls silent.

        Raises:
            ReplicaLostError: it has; the stream is cancelled.
        """
        try:
            async with asyncio.timeout(None) as limit:
                with SilenceWatch(self._replica, self._patience, partial(self._give_up, limit)):
                    return await work
        except TimeoutError:
            self._call.cancel()
            raise self._silence or self._gone() from None
        except asyncio.CancelledError:
            # A stream that was given up by another wait ends this one as if we were cancelled.
            task = asyncio.current_task()
            if self._silence is None or task is None or task.cancelling():
                raise
            raise self._silence from None

    def _give_up(self, limit: asyncio.Timeout, silence: ReplicaLostError) -> None:
        # To cancel the stream alone would not do: a write that waits for a connection stays.
        self._silence = silence
        limit.reschedule(asyncio.get_running_loop().time())
