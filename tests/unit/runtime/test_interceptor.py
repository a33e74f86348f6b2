"""A caller's messages are read no faster than a second's worth a second; a lost one is no error."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import grpc
import pytest
from grpc._cython import cygrpc
from hypothesis import given
from hypothesis import strategies as st

from earvoice.runtime.errors import SlowReaderError
from earvoice.runtime.interceptor import MessageReader, StatusInterceptor, rate_limit

RATE_PER_S = 10


class Time:
    """A clock that goes on only when somebody waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def clock_s(self) -> float:
        return self.now_s

    async def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s


def read_times_s(gaps_s: list[float]) -> list[float]:
    """When each of some messages is read that come after these gaps."""
    time = Time()
    pace = rate_limit(RATE_PER_S, time.clock_s, time.sleep)

    async def read() -> list[float]:
        times_s = []
        for gap_s in gaps_s:
            time.now_s += gap_s
            await pace()
            times_s.append(time.now_s)
        return times_s

    return asyncio.run(read())


def test_a_burst_is_read_at_once_and_what_follows_at_the_rate():
    """Ten at once, the eleventh a tenth of a second later."""
    times_s = read_times_s([0.0] * 12)
    assert times_s[:10] == [0.0] * 10
    assert [round(time_s, 6) for time_s in times_s[10:]] == [0.1, 0.2]


def test_who_keeps_to_the_rate_never_waits():
    """However long it goes on."""
    times_s = read_times_s([0.1] * 50)
    assert [round(time_s, 6) for time_s in times_s] == [round(0.1 * k, 6) for k in range(1, 51)]


@given(st.lists(st.floats(0, 2), max_size=60))
def test_no_second_has_more_than_two_seconds_messages(gaps_s):
    """A burst, and the rate."""
    times_s = read_times_s(gaps_s)
    for first_s in times_s:
        within = [time_s for time_s in times_s if first_s <= time_s < first_s + 1 - 1e-6]
        assert len(within) <= 2 * RATE_PER_S


async def test_a_read_whose_end_is_told_late_ends_no_other_wait():
    """A read that nobody waited for is over; what is told of that meets the next one's wait."""
    first, second = asyncio.Event(), asyncio.Event()

    class Context:
        async def read(self) -> bytes:
            event, message = (second, b"second") if first.is_set() else (first, b"first")
            await event.wait()
            return message

    reader = MessageReader(Context(), bytes, idle_timeout_s=60)
    left = asyncio.create_task(reader._read(60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait([left])
    first.set()
    await asyncio.sleep(0)
    assert await reader._read(60) == b"first"
    asyncio.get_running_loop().call_later(0.05, second.set)
    assert await reader._read(60) == b"second"
    await reader.close()


@pytest.mark.parametrize("failing", ["write", "abort_with_status"])
async def test_a_lost_caller_is_no_error_of_ours(failing: str, caplog: pytest.LogCaptureFixture):
    """On a connection that is lost a write may fail before gRPC has cancelled the call."""

    class Context(SimpleNamespace):
        async def read(self) -> object:
            return grpc.aio.EOF

        async def write(self, _: object) -> None:
            await self.lose("write")

        async def abort_with_status(self, _: object) -> None:
            await self.lose("abort_with_status")

        async def lose(self, call: str) -> None:
            if call != failing:
                pytest.fail(f"{call} comes first")
            raise cygrpc.ExecuteBatchError("Failed")

    async def method(*_: object):
        if failing != "write":
            raise SlowReaderError("a reason to abort")
        yield b"an answer"

    handler = grpc.stream_stream_rpc_method_handler(method, bytes, bytes)

    async def find(_: object):
        return handler

    details = SimpleNamespace(method="/earvoice.api.v1.Any/Method")
    wrapped = await StatusInterceptor(write_timeout_s=10).intercept_service(find, details)
    with pytest.raises(asyncio.CancelledError):
        await wrapped.stream_stream(None, Context())
    assert not caplog.records
