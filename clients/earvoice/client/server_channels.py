"""A client's connections to its server: one in use, and a new one when that is lost."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import grpc
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.client.errors import ServerUnavailableError, SessionEndedError

_LOG = logging.getLogger("earvoice.client")

HEALTH_TIMEOUT_S = 2.0
LOOK_INTERVAL_S = 1.0
HIGHEST_PORT = 65_535

_SERVICE = api.DESCRIPTOR.services_by_name["SpeechTranslationService"].full_name
_DNS = "dns:///"
_SERVING = 1
_SCHEMES = ("dns", "ipv4", "ipv6", "vsock", "xds")
"""URI schemes of gRPC targets; any other text before a colon is a host."""
_SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


Target = tuple[str, str]
"""An address of the server, ``host:port`` or any gRPC target, and the name in its certificate if
that is not in the address; else empty."""


def split_address(address: str) -> tuple[str, ...]:
    """Return the parts of a list of addresses."""
    parts = tuple(part.strip() for part in address.split(","))
    schemes = [part.partition("://")[0] for part in parts if "://" in part]
    if not all(parts) or not {*schemes} <= {*_SCHEMES, "unix"}:
        raise ValueError(
            f"server = {address!r} is not allowed; allowed: host:port, several separated by "
            "commas, or dns:///name:port"
        )
    for part in parts:
        host, _, port = part.rpartition(":")
        if host in ("", *_SCHEMES) or part.startswith("unix") or part.endswith("]"):
            continue  # there is no port
        if not (port.isdecimal() and 0 < int(port) <= HIGHEST_PORT):
            raise ValueError(f"server = {part!r}: port {port} is not allowed; allowed: 1 to 65535")
    return parts


async def find_targets(parts: tuple[str, ...]) -> list[Target]:
    """Return all current addresses; ``dns:///name:port`` stands for all addresses of the name.

    A name that cannot be resolved is left to gRPC, which says what is wrong with it.
    """
    targets: list[Target] = []
    for part in parts:
        targets += await _looked_up(part) if part.startswith(_DNS) else [(part, "")]
    return targets


async def _looked_up(part: str) -> list[Target]:
    name, _, port = part.removeprefix(_DNS).rpartition(":")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except OSError:
        return [(part, "")]
    addresses = dict.fromkeys((family, str(place[0])) for family, _, _, _, place in found)
    return [
        (f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}", name)
        for family, host in addresses
    ]


def connections_closed() -> SessionEndedError:
    return SessionEndedError("the client has been closed", code="CANCELLED")


@contextmanager
def translate_closing() -> Iterator[None]:
    """Raise SessionEndedError where gRPC cancels a call because its connection is closed."""
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise connections_closed() from None


class ServerChannel:
    """A connection to one address, used by any number of calls.

    Attributes:
        search: looks for another server, once this one has announced that it is going away.
    """

    def __init__(self, target: Target, channel: grpc.aio.Channel) -> None:
        self.target = target
        self.channel = channel
        self.user_count = 0
        self.is_retired = False
        self.search: asyncio.Task[None] | None = None

    async def is_serving(self) -> bool:
        """Say whether a new session would be welcome."""
        return await self._health() == _SERVING

    async def answers(self) -> bool:
        """Say whether anything answers there, if only to refuse."""
        return await self._health() is not None

    async def _health(self) -> int | None:
        """Return the server's health status; 0 for another answer, None for none.

        Raises:
            SessionEndedError: the connection was closed meanwhile.
        """
        # HealthCheckRequest and HealthCheckResponse have one field each, number 1: on the wire
        # they are the same as protobuf's own wrappers, which need no further package.
        check = self.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=StringValue.SerializeToString,
            response_deserializer=Int32Value.FromString,
        )
        try:
            with translate_closing():
                answer = await check(StringValue(value=_SERVICE), timeout=HEALTH_TIMEOUT_S)
        except grpc.aio.AioRpcError as failure:
            return None if failure.code() in _SILENT else 0
        status: int = answer.value
        return status


class ServerChannels:
    """All calls share one connection. A call that loses it gets a new one, to the next address.

    Even a new connection to the same address may lead elsewhere, through a load balancer.
    """

    def __init__(
        self, parts: tuple[str, ...], open_channel: Callable[[Target], grpc.aio.Channel]
    ) -> None:
        self._parts = parts
        self._open_channel = open_channel
        self._current: ServerChannel | None = None
        self._channels: set[ServerChannel] = set()
        self.is_closed = False

    @asynccontextmanager
    async def use(self, lost: ServerChannel | None = None) -> AsyncIterator[ServerChannel]:
        """Yield the connection: another one than ``lost``, which was yielded before.

        Raises:
            SessionEndedError: all connections have been closed.
            ServerUnavailableError: there cannot be another one now.
            OSError: the first one cannot be called: a file cannot be used.
        """
        if self._current is None or self._current is lost:
            try:
                opened = await self._open_after(lost.target if lost else None)
            except OSError as error:
                if lost is None:
                    raise
                # A certificate is being replaced: soon there is one.
                message = f"no other server can be called: {error}"
                raise ServerUnavailableError(message, code="UNAVAILABLE") from error
            if not self.is_closed and (self._current is None or self._current is lost):
                self._replace(opened)
            else:
                # Another session was faster, while we looked a name up.
                await opened.channel.close()
            if lost is not None:
                await self._close_if_done(lost)
        if self.is_closed:
            raise connections_closed()
        assert self._current is not None  # noqa: S101 - just replaced
        used = self._current
        used.user_count += 1
        try:
            yield used
        finally:
            used.user_count -= 1
            await self._close_if_done(used)

    async def count(self) -> int:
        return len(await find_targets(self._parts))

    def search_other(self, leaving: ServerChannel) -> asyncio.Task[None]:
        """Look for another server that takes sessions, to be used instead of ``leaving``.

        All calls on that connection share the search, which ends with the last of them.
        """
        if leaving.search is None:
            leaving.search = asyncio.create_task(self._find_other(leaving))
        return leaving.search

    async def close(self) -> None:
        self.is_closed = True
        # Calls that this ends remove their connections meanwhile.
        for channel in tuple(self._channels):
            await channel.channel.close()
        self._channels.clear()

    def _replace(self, channel: ServerChannel) -> None:
        if self._current is not None:
            self._current.is_retired = True
        self._current = channel
        self._channels.add(channel)

    async def _find_other(self, leaving: ServerChannel) -> None:
        while not await self._finds_other(leaving):  # noqa: ASYNC110 - remote
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _finds_other(self, leaving: ServerChannel) -> bool:
        target = leaving.target
        try:
            for _ in range(await self.count()):
                if self._current is not leaving:
                    break
                candidate = await self._open_after(target)
                target = candidate.target
                try:
                    is_serving = await candidate.is_serving()
                    if is_serving and self._current is leaving and not self.is_closed:
                        self._replace(candidate)
                finally:
                    # The search may also be cancelled.
                    if self._current is not candidate:
                        await candidate.channel.close()
        except OSError as error:
            # A name is not found, or a certificate is being replaced: the sessions stay where
            # they are, and we look again.
            _LOG.warning("no other server is found: %s", error)
        return self._current is not leaving

    async def _open_after(self, target: Target | None) -> ServerChannel:
        targets = await find_targets(self._parts)
        place = targets.index(target) + 1 if target in targets else 0
        chosen = targets[place % len(targets)]
        return ServerChannel(chosen, self._open_channel(chosen))

    async def _close_if_done(self, channel: ServerChannel) -> None:
        if channel.user_count:
            return
        if channel.search is not None:
            search, channel.search = channel.search, None
            search.cancel()
            await asyncio.wait({search})
        if channel.is_retired:
            self._channels.discard(channel)
            await channel.channel.close()
