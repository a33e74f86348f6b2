"""Connections with limits: a caller that is silent, does not read or sends too much is closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from earvoice.client import TranslationError
from earvoice.gateway.messages import dump, may_pass
from earvoice.gateway.settings import GatewaySettings
from earvoice.runtime.errors import (
    Code,
    EarvoiceError,
    IdleError,
    InternalError,
    SlowReaderError,
)

# RFC 6455 §7.4.1, and the registry that it opens.
CLOSE_NORMAL = 1000
CLOSE_GOING_AWAY = 1001
CLOSE_REFUSED = 1008
CLOSE_FAULT = 1011
CLOSE_TRY_AGAIN = 1013
_CLOSE_NO_STATUS = 1005
_CLOSE_ABNORMAL = 1006
_CLOSED_BY_CALLER = frozenset({CLOSE_NORMAL, CLOSE_GOING_AWAY, _CLOSE_NO_STATUS})
_LONGEST_CLOSE_REASON_BYTES = 123
_Result = TypeVar("_Result")
FAULT = "a fault of the gateway's; its log has the details"
_FAULTS = frozenset({"INTERNAL", "UNKNOWN"})


class Describe(Protocol):
    """Writes an error in a dialect; see `describe_error`."""

    def __call__(
        self, error: EarvoiceError | TranslationError, *, has_begun: bool = False
    ) -> dict[str, Any]: ...


class Connection:
    """A WebSocket.

    Attributes:
        has_begun: whether the caller has been told of a session.
    """

    def __init__(self, websocket: WebSocket, settings: GatewaySettings) -> None:
        self.websocket = websocket
        self._settings = settings
        self._is_writing = asyncio.Lock()
        self.has_begun = False

    @property
    def traceparent(self) -> str:
        """The traceparent of the request that opened the connection; empty where that has none."""
        return self.websocket.headers.get("traceparent", "")

    async def receive(self, timeout_ms: int | None, what: str) -> str | bytes:
        """Return the next message; ``what`` names it in the error if it is late."""
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                message = await self.websocket.receive()
        except TimeoutError as error:
            raise IdleError(f"{what} did not come within {timeout_ms} ms") from error
        if message["type"] == "websocket.disconnect":
            # uvicorn reports a lost connection as 1005, without the reason that a close frame has.
            code = message["code"] if "reason" in message else _CLOSE_ABNORMAL
            raise WebSocketDisconnect(code, message.get("reason"))
        text: str | None = message.get("text")
        return message["bytes"] if text is None else text

    async def send(self, text: str) -> None:
        timeout_ms = self._settings.write_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._is_writing:
                if self.websocket.application_state is WebSocketState.DISCONNECTED:
                    # Sending another message has already found the caller gone.
                    raise WebSocketDisconnect(_CLOSE_ABNORMAL)
                await self.websocket.send_text(text)
        except TimeoutError as error:
            raise SlowReaderError(f"an answer was not read within {timeout_ms} ms") from error

    async def tell_error(self, describe: Describe, error: EarvoiceError | TranslationError) -> None:
        """Send an error, unless it is that the caller does not read."""
        if not isinstance(error, SlowReaderError):
            with suppress(SlowReaderError, WebSocketDisconnect):  # it has gone, or does not read
                await self.send(dump(describe(error, has_begun=self.has_begun)))

    async def close(self, code: int, reason: str) -> None:
        """Close, unless the caller has; if it does not read, leave the rest to the server."""
        socket = self.websocket
        open_both_ways = (socket.client_state, socket.application_state)
        if any(state is WebSocketState.DISCONNECTED for state in open_both_ways):
            return
        shortened = reason.encode()[:_LONGEST_CLOSE_REASON_BYTES].decode(errors="ignore")
        try:
            async with asyncio.timeout(self._settings.write_timeout_ms / 1000):
                await socket.close(code, shortened)
        except (TimeoutError, WebSocketDisconnect):
            return  # the caller does not read, or has gone


async def body_of(request: Request, timeout_ms: int) -> AsyncIterator[bytes]:
    """Yield the blocks of a request's body.

    Raises:
        IdleError: one did not come in time.
    """
    blocks = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                block = await anext(blocks, None)
        except TimeoutError as error:
            raise IdleError(f"nothing came within {timeout_ms} ms") from error
        if block is None:
            return
        yield block


async def wait_until_gone(receive: Receive) -> None:
    """Return once a caller whose body was read has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(request: Request, work: Awaitable[_Result]) -> _Result:
    """Do what a request asks for, whose body was read; stop if its caller leaves.

    Raises:
        ClientDisconnect: it has left.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(wait_until_gone(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.wait({working, leaving})


@asynccontextmanager
async def telling_failures(
    logger: logging.Logger,
    close: Callable[[int, str], Awaitable[None]],
    tell: Callable[[EarvoiceError | TranslationError], Awaitable[None]] | None = None,
) -> AsyncIterator[None]:
    """Tell the caller why its connection ends, and close it; a fault of ours is logged.

    Args:
        tell: None where errors cannot be told: then they are logged.
    """
    try:
        yield
    except asyncio.CancelledError:
        # The gateway ends before its callers do.
        await close(CLOSE_GOING_AWAY, "the gateway is going away")
        raise
    except Exception as raised:  # noqa: BLE001 - told and logged below
        error = _first_of(raised)
    else:
        await close(CLOSE_NORMAL, "")
        return
    if isinstance(error, WebSocketDisconnect):
        return
    if not isinstance(error, EarvoiceError | TranslationError):
        logger.error("a connection failed", exc_info=error)
        error = InternalError(FAULT)
    elif tell is None:
        logger.warning("a call is refused or broken off", extra={"cause": error.message})
    if tell is not None:
        await tell(error)
    await close(_close_code(error), error.message)


CANCELLED = "CANCELLED"


def reason_of(error: BaseException) -> str:
    """Return why a stream ended, as an error's reason; `CANCELLED` if its caller left."""
    first = _first_of(error)
    if isinstance(first, TranslationError):
        # A server that is not there, or a proxy before it, gives no reason.
        return first.reason or first.code or InternalError.reason
    if isinstance(first, EarvoiceError):
        return first.reason
    gone = WebSocketDisconnect | asyncio.CancelledError
    return CANCELLED if isinstance(first, gone) else InternalError.reason


def is_final(error: BaseException) -> bool:
    """Say whether a caller whose stream this ends will not resume it.

    It has closed its connection properly, as a page does when it is closed, or is told to give up.
    """
    first = _first_of(error)
    if isinstance(first, WebSocketDisconnect):
        return first.code in _CLOSED_BY_CALLER
    if isinstance(first, EarvoiceError | TranslationError):
        return not may_pass(first)
    return isinstance(first, Exception)  # a fault of ours


def _first_of(error: BaseException) -> BaseException:
    """Return the error to report of several at once: a disconnect only if there is no other."""
    if not isinstance(error, ExceptionGroup):
        return error
    leaves = [_first_of(inner) for inner in error.exceptions]
    return min(leaves, key=lambda leaf: isinstance(leaf, WebSocketDisconnect))


def _close_code(failure: EarvoiceError | TranslationError) -> int:
    code = failure.code.name if isinstance(failure.code, Code) else failure.code
    if code in _FAULTS:
        return CLOSE_FAULT
    return CLOSE_TRY_AGAIN if may_pass(failure) else CLOSE_REFUSED
