"""Wraps every call to our services: identifies callers, parses messages, translates errors.

grpc.aio answers a message it cannot parse, or an exception it does not know, with UNKNOWN and the
Python class's name. So handlers are given raw bytes, which are parsed here, and what they raise is
translated here: our own errors with ``google.rpc.ErrorInfo``, all others as INTERNAL with a fixed
sentence and a log line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from earvoice.runtime.authentication import Authenticator, authenticate, set_tenant
from earvoice.runtime.errors import IdleError, MalformedMessageError, SlowReaderError
from earvoice.runtime.status import as_earvoice_error, status_proto

DISCARD_TIMEOUT_S = 0.5
FIRST_MESSAGE_TIMEOUT_S = 5.0
MESSAGES_PER_SECOND = 1000
"""Ten times what a microphone sends in pieces of 10 ms; some 15 % of a core."""

Context = grpc.aio.ServicerContext[Any, Any]
Parse = Callable[[bytes], Any]

if TYPE_CHECKING:
    # Generic in the type stubs only.
    Handler = grpc.RpcMethodHandler[Any, Any]
    Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]


class StatusInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler of our services; health and reflection are left as they are."""

    def __init__(
        self,
        write_timeout_s: float,
        authenticator: Authenticator | None = None,
        idle_timeout_s: float | None = None,
    ) -> None:
        self._write_timeout_s = write_timeout_s
        self._authenticator = authenticator
        self._idle_timeout_s = idle_timeout_s

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler: Any = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith("/earvoice."):
            return handler  # type: ignore[no-any-return]
        parse = handler.request_deserializer
        if handler.stream_stream:
            wrapped = self._wrap_stream(handler.stream_stream, parse)
            return grpc.stream_stream_rpc_method_handler(wrapped, None, handler.response_serializer)
        wrapped_unary = self._wrap_unary(handler.unary_unary, parse)
        return grpc.unary_unary_rpc_method_handler(wrapped_unary, None, handler.response_serializer)

    def _wrap_unary(self, method: Any, parse: Parse) -> Any:
        async def handle(request: bytes, context: Context) -> Any:
            try:
                await self._identify(context)
                return await method(_parse(request, parse), context)
            except Exception as error:  # noqa: BLE001 - the one place where all are translated
                await _abort(context, error)

        return handle

    def _wrap_stream(self, method: Any, parse: Parse) -> Any:
        async def handle(_: AsyncIterator[bytes], context: Context) -> None:
            requests = MessageReader(context, parse, self._idle_timeout_s)
            writer = ResponseWriter(context, self._write_timeout_s)
            try:
                await self._identify(context)
                async with aclosing(method(requests, context)) as responses:
                    async for response in responses:
                        try:
                            await writer.write(response)
                        except Exception as error:
                            # A handler that is only closed takes its caller for gone.
                            with suppress(StopAsyncIteration):
                                await responses.athrow(error)
                            raise
            except Exception as error:  # noqa: BLE001 - the one place where all are translated
                # A grpc.aio client whose write is under way when the status comes reports INTERNAL
                # instead of it, so a caller that is still sending gets time to end.
                await requests.discard(DISCARD_TIMEOUT_S)
                await _abort(context, error)
            finally:
                writer.close()
                await requests.close()

        return handle

    async def _identify(self, context: Context) -> None:
        if self._authenticator is not None:
            metadata = dict(context.invocation_metadata() or ())
            set_tenant(await authenticate(self._authenticator, metadata))


class MessageReader:
    """The incoming side of one call: its messages, parsed, no faster than `rate_limit` lets them.

    gRPC allows one read at a time and a cancelled one spoils the call, so a read that its caller
    gives up, or that times out, goes on and serves the next caller.

    Args:
        idle_timeout_s: longest wait for a message; None for no limit. The first one, which says
            what is wanted, gets `FIRST_MESSAGE_TIMEOUT_S` at most.
    """

    def __init__(self, context: Context, parse: Parse, idle_timeout_s: float | None) -> None:
        self._context = context
        self._parse = parse
        self._idle_timeout_s = idle_timeout_s
        first_s = min(FIRST_MESSAGE_TIMEOUT_S, idle_timeout_s or FIRST_MESSAGE_TIMEOUT_S)
        self._timeout_s: float | None = first_s
        self._pace = rate_limit()
        self._reading: asyncio.Task[Any] | None = None
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[bool] = self._loop.create_future()
        """Whether the time ran out."""
        self._alarm = Alarm(lambda: self._wake(None))

    def __aiter__(self) -> MessageReader:
        return self

    async def __anext__(self) -> Any:
        message = await self._read(self._timeout_s)
        if message is None:
            raise StopAsyncIteration
        self._timeout_s = self._idle_timeout_s
        await self._pace()
        return _parse(message, self._parse)

    async def _read(self, timeout_s: float | None) -> bytes | None:
        if self._reading is None:
            self._reading = asyncio.create_task(self._context.read())
            self._reading.add_done_callback(self._wake)
        # The callback of the read before may come only now.
        while not self._reading.done():
            self._waiter = self._loop.create_future()
            self._alarm.set(timeout_s)
            try:
                is_late = await self._waiter
            finally:
                self._alarm.unset()
            if is_late and not self._reading.done():
                raise IdleError(f"no message came for {timeout_s:g} s")
        reading, self._reading = self._reading, None
        message = reading.result()
        return None if message is grpc.aio.EOF else message

    def _wake(self, read: asyncio.Task[Any] | None) -> None:
        if not self._waiter.done():
            self._waiter.set_result(read is None)

    async def discard(self, timeout_s: float) -> None:
        """Read and forget messages until the half-close, but no longer than this."""
        try:
            async with asyncio.timeout(timeout_s):
                while await self._read(None) is not None:
                    pass
        except TimeoutError:
            return

    async def close(self) -> None:
        self._alarm.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])


class ResponseWriter:
    """The outgoing side of one call.

    Args:
        timeout_s: how long the caller may leave a response, or those before it, unread.
    """

    def __init__(self, context: Context, timeout_s: float) -> None:
        self._context = context
        self._timeout_s = timeout_s
        self._alarm = Alarm(self._give_up)
        self._writing: asyncio.Task[Any] | None = None
        self._gave_up = False

    async def write(self, response: Any) -> None:
        self._writing = asyncio.current_task()
        self._alarm.set(self._timeout_s)
        try:
            await self._context.write(response)
        except asyncio.CancelledError:
            if not self._gave_up or self._writing is None:
                raise
            self._writing.uncancel()
            raise SlowReaderError(f"a response was not read for {self._timeout_s:g} s") from None
        except grpc.aio.InternalError as error:
            raise _gone() from error
        finally:
            self._alarm.unset()

    def close(self) -> None:
        self._alarm.close()

    def _give_up(self) -> None:
        if self._writing is not None:
            self._gave_up = True
            self._writing.cancel()


class Alarm:
    """Calls back when a wait lasts too long.

    A call waits thousands of times, and a timer for each wait would cost more than the wait. So
    there is one timer, which looks at the deadline, and is set again only when it has run out.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._deadline_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, timeout_s: float | None) -> None:
        """Ring after this time, unless it is unset or set again; None never rings."""
        if timeout_s is None:
            self._deadline_s = None
            return
        self._deadline_s = self._loop.time() + timeout_s
        if self._timer is None or self._timer.when() > self._deadline_s:
            self.close()
            self._timer = self._loop.call_at(self._deadline_s, self._look)

    def unset(self) -> None:
        self._deadline_s = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._deadline_s is None:
            return
        if self._loop.time() >= self._deadline_s:
            self._ring()
        else:
            self._timer = self._loop.call_at(self._deadline_s, self._look)


def rate_limit(
    rate_per_s: int = MESSAGES_PER_SECOND,
    clock_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Callable[[], Awaitable[None]]:
    """Return a wait that lets a second's messages through at once, then no more than that a second.

    So no caller has the event loop for itself. Messages that are not read wait in the network, as
    does audio that is not yet processed.
    """
    paid_until_s = clock_s() - 1

    async def wait() -> None:
        nonlocal paid_until_s
        now_s = clock_s()
        # An unused allowance lasts for one second.
        paid_until_s = max(paid_until_s, now_s - 1) + 1 / rate_per_s
        if paid_until_s > now_s:
            await sleep(paid_until_s - now_s)

    return wait


def _parse(message: bytes, parse: Parse) -> Any:
    try:
        return parse(message)
    except (DecodeError, ValueError) as error:
        raise MalformedMessageError(
            f"{len(message)} bytes are not the message this method takes"
        ) from error


async def _abort(context: Context, error: BaseException) -> NoReturn:
    ours = as_earvoice_error(error)
    try:
        await context.abort_with_status(rpc_status.to_status(status_proto(ours)))
    except grpc.aio.InternalError as failure:
        raise _gone() from failure
    raise AssertionError  # abort_with_status always raises


def _gone() -> asyncio.CancelledError:
    """Return the exception that ends the call of a caller that can no longer be reached.

    A write on a lost connection may fail before gRPC has cancelled the call.
    """
    return asyncio.CancelledError("the caller has gone")
