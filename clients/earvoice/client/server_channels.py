"""The connections of a client to its server: one in use, another when that is lost."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.client.server_target import ServerTarget, find_targets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

HEALTH_TIMEOUT_S = 2.0

_SERVICE = api.DESCRIPTOR.services_by_name["SpeechTranslationService"].full_name
_SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class ServerChannel:
    """A connection to one address, used by any number of calls.

    Args:
        target: the address.
        channel: open.
    """

    def __init__(self, target: ServerTarget, channel: grpc.aio.Channel) -> None:
        self.target = target
        self.channel = channel
        self.user_count = 0
        self.is_retired = False

    async def is_serving(self) -> bool:
        """Say whether a new session would be welcome."""
        serving: int = health_pb2.HealthCheckResponse.SERVING
        return await self._health() == serving

    async def answers(self) -> bool:
        """Say whether somebody is there, be it only to say no."""
        return await self._health() is not None

    async def _health(self) -> int | None:
        """Return what the server says of its health; 0 where it says something else."""
        stub = health_pb2_grpc.HealthStub(self.channel)
        request = health_pb2.HealthCheckRequest(service=_SERVICE)
        try:
            answer = await stub.Check(request, timeout=HEALTH_TIMEOUT_S)
        except grpc.aio.AioRpcError as failure:
            return None if failure.code() in _SILENT else 0
        status: int = answer.status
        return status


class ServerChannels:
    """All calls share one connection. Who lost it gets another: a new one, to the next address.

    A new connection to the same address may lead elsewhere, too: behind it there may be a balancer.

    Args:
        parts: addresses, see `server_target`.
        open_channel: opens a channel.
    """

    def __init__(
        self, parts: tuple[str, ...], open_channel: Callable[[ServerTarget], grpc.aio.Channel]
    ) -> None:
        self._parts = parts
        self._open_channel = open_channel
        self._current: ServerChannel | None = None
        self._channels: set[ServerChannel] = set()

    @asynccontextmanager
    async def use(self, lost: ServerChannel | None = None) -> AsyncIterator[ServerChannel]:
        """Give the connection.

        Args:
            lost: the one that was given before and is of no use any more.
        """
        if self._current is None or self._current is lost:
            self._replace(await self._open_after(lost))
        assert self._current is not None  # noqa: S101 - just replaced
        used = self._current
        used.user_count += 1
        try:
            yield used
        finally:
            used.user_count -= 1
            await self._close_if_done(used)

    async def count(self) -> int:
        """Return how many addresses there are now."""
        return len(await find_targets(self._parts))

    async def find_other(self, leaving: ServerChannel) -> bool:
        """Look for another place that takes sessions, and go there from now on.

        Args:
            leaving: the connection whose server goes away.
        """
        if self._current is not leaving:
            return True
        target = leaving.target
        for _ in range(await self.count()):
            candidate = await self._open_after_target(target)
            serves = await candidate.is_serving()
            if serves and self._current is leaving:
                self._replace(candidate)
                return True
            await candidate.channel.close()
            if self._current is not leaving:
                # Another session of ours was faster.
                return True
            target = candidate.target
        return False

    async def close(self) -> None:
        """Close every connection."""
        # Calls that end with it let go of connections that are no longer used.
        for channel in tuple(self._channels):
            await channel.channel.close()
        self._channels.clear()

    def _replace(self, channel: ServerChannel) -> None:
        if self._current is not None:
            self._current.is_retired = True
        self._current = channel
        self._channels.add(channel)

    async def _open_after(self, lost: ServerChannel | None) -> ServerChannel:
        before = self._current
        opened = await self._open_after_target(lost.target if lost else None)
        if before is not None:
            before.is_retired = True
            await self._close_if_done(before)
        return opened

    async def _open_after_target(self, target: ServerTarget | None) -> ServerChannel:
        targets = await find_targets(self._parts)
        place = targets.index(target) + 1 if target in targets else 0
        chosen = targets[place % len(targets)]
        return ServerChannel(chosen, self._open_channel(chosen))

    async def _close_if_done(self, channel: ServerChannel) -> None:
        if channel.is_retired and not channel.user_count:
            self._channels.discard(channel)
            await channel.channel.close()
