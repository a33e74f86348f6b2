"""One connection for all calls, and another when its server leaves."""

from __future__ import annotations

import asyncio

from grpc_health.v1 import health_pb2

from earvoice.client.server_channels import ServerChannels


class FakeChannel:
    """A connection to a server that serves, once it is let answer."""

    def __init__(self, answering: asyncio.Event) -> None:
        self._answering = answering
        self.is_closed = False

    def unary_unary(self, path: str, **_):
        async def check(request, **_):
            await self._answering.wait()
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

        return check

    def unary_stream(self, path: str, **_):
        """Nobody follows its health."""

    async def close(self) -> None:
        self.is_closed = True


async def test_sessions_that_leave_together_go_to_one_connection():
    """Whoever looks for another server finds the one that was found first; none is left open."""
    answering = asyncio.Event()
    opened: list[FakeChannel] = []

    def open_channel(_) -> FakeChannel:
        opened.append(FakeChannel(answering))
        return opened[-1]

    channels = ServerChannels(("a:1", "b:1"), open_channel)
    async with channels.use() as leaving:
        searches = [asyncio.create_task(channels.find_other(leaving)) for _ in range(3)]
        answering.set()
        assert await asyncio.gather(*searches) == [True] * 3
        async with channels.use(leaving) as found:
            assert found.channel is not leaving.channel
    assert [channel for channel in opened if not channel.is_closed] == [found.channel]
