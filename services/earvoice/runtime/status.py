"""Errors become statuses, and bytes become messages, at one place for every method.

grpc.aio answers a message it cannot parse, or an exception it does not know, with UNKNOWN and the
Python class's name. So handlers are given raw bytes, which are parsed here, and what they raise is
translated here: our own errors with ``google.rpc.ErrorInfo``, all others as INTERNAL with a fixed
sentence and a log line.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from earvoice.runtime.authentication import Authenticator, authenticate
from earvoice.runtime.errors import (
    Code,
    EarvoiceError,
    InternalError,
    MalformedMessageError,
    RemoteError,
    SlowReaderError,
    find_error,
)
from earvoice.runtime.identity import set_tenant
from earvoice.runtime.message_pace import MessagePace
from earvoice.runtime.message_reader import MessageReader

ERROR_DOMAIN = "earvoice"
DISCARD_TIMEOUT_S = 0.5
_LOG = logging.getLogger("earvoice.runtime.status")

if TYPE_CHECKING:
    # Generic in the type stubs only.
    Handler = grpc.RpcMethodHandler[Any, Any]
    Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]


class StatusInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler of our services; health and reflection are left as they are.

    Args:
        write_timeout_s: how long a caller may leave a response unread.
        authenticator: knows who may call; None lets in everybody.
    """

    def __init__(self, write_timeout_s: float, authenticator: Authenticator | None = None) -> None:
        self._write_timeout_s = write_timeout_s
        self._authenticator = authenticator

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Return the handler that parses and translates."""
        handler: Any = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith("/earvoice."):
            return handler  # type: ignore[no-any-return]
        if handler.stream_stream:
            wrapped = _wrap_stream(
                handler.stream_stream,
                handler.request_deserializer,
                self._authenticator,
                self._write_timeout_s,
            )
            return grpc.stream_stream_rpc_method_handler(wrapped, None, handler.response_serializer)
        wrapped_unary = _wrap_unary(
            handler.unary_unary, handler.request_deserializer, self._authenticator
        )
        return grpc.unary_unary_rpc_method_handler(wrapped_unary, None, handler.response_serializer)


def _wrap_unary(
    method: Any, parse: Callable[[bytes], Any], authenticator: Authenticator | None
) -> Any:
    async def handle(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            await _identify(context, authenticator)
            return await method(_parse(request, parse), context)
        except Exception as error:  # noqa: BLE001 - the one place where all are translated
            await _abort(context, error)

    return handle


def _wrap_stream(
    method: Any,
    parse: Callable[[bytes], Any],
    authenticator: Authenticator | None,
    write_timeout_s: float,
) -> Any:
    async def requests(reader: MessageReader) -> AsyncIterator[Any]:
        pace = MessagePace()
        while (message := await reader.next()) is not None:
            await pace.wait()
            yield _parse(message, parse)

    async def handle(
        raw: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        reader = MessageReader(raw)
        try:
            await _identify(context, authenticator)
            async with aclosing(method(requests(reader), context)) as responses:
                async for response in responses:
                    await _write(context, response, write_timeout_s)
        except Exception as error:  # noqa: BLE001 - the one place where all are translated
            # A grpc.aio client whose write is under way when the status comes reports INTERNAL
            # instead of it, so a caller in full flow gets the time to end.
            await reader.discard(DISCARD_TIMEOUT_S)
            await _abort(context, error)
        finally:
            await reader.close()

    return handle


async def _identify(
    context: grpc.aio.ServicerContext[Any, Any], authenticator: Authenticator | None
) -> None:
    """Note the caller's tenant for all that runs in this call; refuse who is not known."""
    if authenticator is not None:
        metadata = dict(context.invocation_metadata() or ())
        set_tenant(await authenticate(authenticator, metadata))


async def _write(
    context: grpc.aio.ServicerContext[Any, Any], response: Any, timeout_s: float
) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await context.write(response)
    except TimeoutError as error:
        raise SlowReaderError(f"a response was not read for {timeout_s:g} s") from error


def _parse(message: bytes, parse: Callable[[bytes], Any]) -> Any:
    try:
        return parse(message)
    except (DecodeError, ValueError) as error:
        raise MalformedMessageError(
            f"{len(message)} bytes are not the message this method takes"
        ) from error


async def _abort(context: grpc.aio.ServicerContext[Any, Any], error: BaseException) -> NoReturn:
    ours = as_earvoice_error(error)
    await context.abort_with_status(rpc_status.to_status(status_proto(ours)))
    raise AssertionError  # abort_with_status always raises


def as_earvoice_error(error: BaseException) -> EarvoiceError:
    """Return what the caller shall be told.

    A group counts as its first error of ours. What is not ours is logged with an id and becomes
    an InternalError that names only the id.
    """
    ours = find_error(error)
    if ours is not None:
        return ours
    incident = uuid.uuid4().hex
    _LOG.error("unexpected error", exc_info=error, extra={"incident": incident})
    return InternalError(
        f"internal error; the server's log has it as incident {incident}", incident=incident
    )


def status_proto(error: EarvoiceError) -> status_pb2.Status:
    """Return the error as ``google.rpc.Status`` with ErrorInfo, and RetryInfo where it helps."""
    info = error_details_pb2.ErrorInfo(
        reason=error.reason, domain=ERROR_DOMAIN, metadata=error.metadata
    )
    details = [_packed(info)]
    if error.retry_after_ms is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(error.retry_after_ms)
        details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    return status_pb2.Status(code=int(error.code), message=error.message, details=details)


def remote_error(error: grpc.aio.AioRpcError) -> RemoteError | None:
    """Return another service's error, or None when the status is the transport's own."""
    details = dict(error.trailing_metadata()).get("grpc-status-details-bin")
    if not isinstance(details, bytes):
        return None
    status = status_pb2.Status.FromString(details)
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    retry_after_ms = None
    for detail in status.details:
        detail.Unpack(info)
        if detail.Unpack(retry):
            retry_after_ms = retry.retry_delay.ToMilliseconds()
    if info.domain != ERROR_DOMAIN:
        return None
    return RemoteError(
        Code(status.code), info.reason, status.message, retry_after_ms, **dict(info.metadata)
    )


def _packed(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
