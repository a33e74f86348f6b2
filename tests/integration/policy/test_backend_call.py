"""A stream to a replica that falls silent ends, whatever it was doing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from earvoice.api.v1 import encoder_service_pb2 as encoder_pb
from earvoice.policy.backends.call import BackendCall, BackendTimeouts, ReplicaLostError
from earvoice.policy.backends.replicas import ENCODER
from tests.integration.policy.scripted_backends import scripted_replica

TIMEOUTS = BackendTimeouts(answer_s=0.1)
SECOND = encoder_pb.EncodeRequest(audio=encoder_pb.EncodeAudio(revision=1, data=bytes(32_000)))


class SilentReplica:
    kind = ENCODER

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def open_call(self) -> Any:
        return ENCODER.open_call(self._channel, ())

    async def is_alive(self, timeout_s: float) -> bool:
        return False


@asynccontextmanager
async def call_to(address: str, timeouts: BackendTimeouts = TIMEOUTS) -> AsyncIterator[BackendCall]:
    async with grpc.aio.insecure_channel(address) as channel, asyncio.timeout(120):
        call = BackendCall(SilentReplica(channel), {"encoder": ""}, lambda: 0.0, timeouts)  # type: ignore[arg-type]
        try:
            yield call
        finally:
            call.cancel()


@asynccontextmanager
async def black_hole() -> AsyncIterator[str]:
    """The address of somebody who takes connections and says nothing."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def write_until_full(call: BackendCall) -> None:
    for _ in range(1000):
        await call.write(SECOND)


@pytest.mark.parametrize("operation", ["write", "read", "close"])
async def test_a_black_hole_is_given_up(operation: str):
    """Before there is a connection; and whatever comes after says the same."""
    async with black_hole() as address, call_to(address) as call:
        for _ in range(2):
            with pytest.raises(ReplicaLostError):
                await (call.write(SECOND) if operation == "write" else getattr(call, operation)())


async def test_a_write_that_is_never_read_is_given_up():
    """The transport has room for some."""
    replica = scripted_replica("encoder")
    replica.servicer.gate.clear()
    await replica.start()
    async with call_to(replica.address) as call:
        with pytest.raises(ReplicaLostError, match=r"has not answered for 0\.1 s"):
            await write_until_full(call)
    await replica.die()


async def test_a_wait_beside_one_that_was_given_up_ends_too():
    """As a loss: a bare cancellation would end the session without a word."""
    replica = scripted_replica("encoder")
    replica.servicer.gate.clear()
    await replica.start()
    async with call_to(replica.address) as call:
        waits = [call.read(), write_until_full(call)]
        results = await asyncio.gather(*waits, return_exceptions=True)
    assert all(isinstance(result, ReplicaLostError) for result in results), results
    await replica.die()


async def test_a_cancelled_session_is_no_loss():
    """Whoever waits is cancelled, and nobody is asked anything."""
    async with black_hole() as address, call_to(address) as call:
        waiting = asyncio.create_task(call.read())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_writes_at_once_follow_one_another():
    """A halt may still be under way when the next generation is asked for."""
    replica = scripted_replica("encoder")
    await replica.start()
    async with call_to(replica.address, BackendTimeouts(answer_s=60)) as call:
        await asyncio.gather(*(call.write(SECOND) for _ in range(10)), call.close())
    assert replica.servicer.commands == [("audio", 16_000 * count) for count in range(1, 11)]
    await replica.die()
