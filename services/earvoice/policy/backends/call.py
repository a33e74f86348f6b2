"""A stream to another service, with the transport's errors turned into ours at one place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from earvoice.policy.backends.request_clock import RequestClock
from earvoice.runtime.errors import BackendUnavailableError, EarvoiceError
from earvoice.runtime.status import remote_error

RETRY_AFTER_MS = 1000


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
    """One stream. A status of ours is final; any other means that the service is gone.

    Args:
        call: grpc's call object.
        service: its name in messages.
        traceparent: gives the trace that the next message belongs to, or an empty string.
        starved_s: see `RequestClock`.
    """

    def __init__(
        self,
        call: Any,
        service: str,
        traceparent: Callable[[], str],
        starved_s: Callable[[], float],
    ) -> None:
        self._call = call
        self._service = service
        self._traceparent = traceparent
        self._starved_s = starved_s

    def clock(self) -> RequestClock:
        """Return the clock of a request that is sent now."""
        return RequestClock(self._starved_s)

    async def write(self, request: Any) -> None:
        """Send a request with the trace.

        Raises:
            EarvoiceError: the stream has ended.
        """
        request.trace_context.traceparent = self._traceparent()
        try:
            await self._call.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise await self._ended() from error

    async def read(self) -> Any:
        """Return the next answer.

        Raises:
            EarvoiceError: the stream has ended instead.
        """
        answer = await self._read()
        if answer is grpc.aio.EOF:
            raise self._gone()
        return answer

    async def close(self) -> None:
        """End the stream and wait until the service has, too; what it still sends is not needed.

        Raises:
            EarvoiceError: it ended badly.
        """
        try:
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise await self._ended() from error
        while await self._read() is not grpc.aio.EOF:
            pass

    def cancel(self) -> None:
        """End the stream at once; void after a good end."""
        self._call.cancel()

    async def _read(self) -> Any:
        try:
            return await self._call.read()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise await self._ended() from error

    async def _ended(self) -> EarvoiceError:
        """Return why the stream has ended; a failed write or read does not know."""
        status = grpc.aio.AioRpcError(
            await self._call.code(),
            await self._call.initial_metadata(),
            await self._call.trailing_metadata(),
        )
        return remote_error(status) or self._gone()

    def _gone(self) -> BackendUnavailableError:
        return BackendUnavailableError(
            f"the {self._service} is gone", retry_after_ms=RETRY_AFTER_MS
        )
