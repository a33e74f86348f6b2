"""One connection for all calls, and another when its server leaves or a name stands for several."""

from __future__ import annotations

import asyncio

import pytest
from grpc_health.v1 import health_pb2

from earvoice.client.errors import SessionEndedError
from earvoice.client.server_channels import (
    ServerChannels,
    find_targets,
    split_address,
)


class FakeChannel:
    """A connection to a server that serves, once it is let answer."""

    def __init__(self, answering: asyncio.Event) -> None:
        self._answering = answering
        self.is_closed = False

    def unary_unary(self, path: str, *, request_serializer, response_deserializer):
        assert path == "/grpc.health.v1.Health/Check"

        async def check(request, **_):
            asked = health_pb2.HealthCheckRequest.FromString(request_serializer(request))
            assert asked.service == "earvoice.api.v1.SpeechTranslationService"
            await self._answering.wait()
            answer = health_pb2.HealthCheckResponse(status="SERVING")
            return response_deserializer(answer.SerializeToString())

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


async def test_sessions_that_are_lost_together_go_to_one_connection():
    """Also while a name is looked up; none is left open beside it."""
    opened: list[FakeChannel] = []

    def open_channel(_) -> FakeChannel:
        opened.append(FakeChannel(asyncio.Event()))
        return opened[-1]

    channels = ServerChannels(("dns:///localhost:1",), open_channel)
    used: list[object] = []
    all_there = asyncio.Barrier(3)

    async def go_on(lost) -> None:
        async with channels.use(lost) as channel:
            used.append(channel.channel)
            await all_there.wait()

    async with channels.use() as lost:
        pass
    await asyncio.gather(*(go_on(lost) for _ in range(3)))
    assert len(set(used)) == 1
    assert [channel for channel in opened if not channel.is_closed] == [used[0]]


async def test_a_search_that_ends_leaves_no_connection_open():
    """It ends with its session, in the middle of a question."""
    opened: list[FakeChannel] = []

    def open_channel(_) -> FakeChannel:
        opened.append(FakeChannel(asyncio.Event()))
        return opened[-1]

    channels = ServerChannels(("a:1", "b:1"), open_channel)
    async with channels.use() as leaving:
        search = asyncio.create_task(channels.find_other(leaving))
        while len(opened) < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        search.cancel()
        await asyncio.wait({search})
    assert [channel.is_closed for channel in opened] == [False, True]


async def test_closed_connections_are_not_opened_again():
    """A session that looks for another one then has ended."""
    channels = ServerChannels(("a:1",), lambda _: FakeChannel(asyncio.Event()))
    async with channels.use() as lost:
        await channels.close()
    with pytest.raises(SessionEndedError):
        async with channels.use(lost):
            pass


def test_addresses_are_separated_by_commas():
    """Blanks do not matter; nothing between commas does."""
    assert split_address("a:1, b:2") == ("a:1", "b:2")
    for address in ("a:1,", "http://a:1"):
        with pytest.raises(ValueError, match="several separated by commas"):
            split_address(address)


def test_a_port_is_a_number() -> None:
    """Where there is one: gRPC has one of its own for a host alone, and sockets have none."""
    for address in ("host:abc", "host:0", "host:65536", "host:", "[::1]:x", "dns:///name:x"):
        with pytest.raises(ValueError, match="allowed: 1 to 65535"):
            split_address(address)
    for address in (
        "host",
        "[::1]",
        "[::1]:1",
        "dns:///name",
        "unix:a",
        "unix:///a",
        "unix-abstract:a:b",
    ):
        assert split_address(address) == (address,)


async def test_a_name_stands_for_all_its_addresses():
    """Each is a target, and the certificate bears the name."""
    targets = await find_targets(("dns:///localhost:50051", "b:2"))
    assert ("127.0.0.1:50051", "localhost") in targets
    assert targets[-1] == ("b:2", "")


async def test_a_name_that_nobody_knows_is_left_to_grpc():
    """It says what is wrong, and may know it later."""
    assert await find_targets(("dns:///no.such.name.invalid:1",)) == [
        ("dns:///no.such.name.invalid:1", "")
    ]
