"""One connection for all calls, and another when its server leaves or a name stands for several."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from grpc_health.v1 import health_pb2

from earvoice.client.errors import SessionEndedError
from earvoice.client.server_channels import (
    ServerChannels,
    find_targets,
    split_address,
)
from earvoice.runtime.tls import TlsFileError
from tests.until import until


class FakeChannel:
    """A connection to a server that tells its health, once it is let answer."""

    def __init__(self, answering: asyncio.Event, status: str = "SERVING") -> None:
        self._answering = answering
        self._status = status
        self.is_closed = False

    def unary_unary(self, path: str, *, request_serializer, response_deserializer):
        assert path == "/grpc.health.v1.Health/Check"

        async def check(request, **_):
            asked = health_pb2.HealthCheckRequest.FromString(request_serializer(request))
            assert asked.service == "earvoice.api.v1.SpeechTranslationService"
            await self._answering.wait()
            answer = health_pb2.HealthCheckResponse(status=self._status)
            return response_deserializer(answer.SerializeToString())

        return check

    def unary_stream(self, path: str, **_):
        """Nobody follows its health."""

    async def close(self) -> None:
        self.is_closed = True


async def test_sessions_that_leave_together_go_to_one_connection():
    """They look for another server together, over one connection; none is left open."""
    answering = asyncio.Event()
    opened: list[FakeChannel] = []

    def open_channel(_) -> FakeChannel:
        opened.append(FakeChannel(answering))
        return opened[-1]

    channels = ServerChannels(("a:1", "b:1"), open_channel)
    async with channels.use() as leaving:
        [search] = {channels.search_other(leaving) for _ in range(3)}
        answering.set()
        await search
        async with channels.use(leaving) as found:
            assert opened == [leaving.channel, found.channel]
    assert [channel.is_closed for channel in opened] == [True, False]


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


async def test_a_search_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch):
    """A certificate that is being replaced ends no session on a server that still serves it."""
    monkeypatch.setattr("earvoice.client.server_channels.LOOK_INTERVAL_S", 0.0)
    answering = asyncio.Event()
    answering.set()
    serving = FakeChannel(answering)
    leaving, stopping = (FakeChannel(answering, "NOT_SERVING") for _ in range(2))
    answers = deque([leaving, TlsFileError("client.crt cannot be used"), stopping, serving])

    def open_channel(_) -> FakeChannel:
        answer = answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    channels = ServerChannels(("a:1",), open_channel)
    async with channels.use() as used:
        await channels.search_other(used)
        async with channels.use(used) as found:
            assert found.channel is serving
    assert (leaving.is_closed, stopping.is_closed) == (True, True)


async def test_a_search_ends_with_the_last_session_and_leaves_no_connection_open():
    """In the middle of a question; a session that comes later looks anew."""
    opened: list[FakeChannel] = []

    def open_channel(_) -> FakeChannel:
        opened.append(FakeChannel(asyncio.Event()))
        return opened[-1]

    channels = ServerChannels(("a:1", "b:1"), open_channel)
    async with channels.use() as leaving:
        async with channels.use():
            search = channels.search_other(leaving)
            await until(lambda: len(opened) >= 2)
        assert not search.done()
    assert search.cancelled()
    assert [channel.is_closed for channel in opened] == [False, True]
    async with channels.use() as leaving:
        assert channels.search_other(leaving) is not search


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
