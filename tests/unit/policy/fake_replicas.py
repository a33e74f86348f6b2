"""Replicas without a network: each tells the health and the model that a test gives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
from grpc_health.v1 import health_pb2

from earvoice.api.v1 import encoder_service_pb2 as encoder_pb
from earvoice.api.v1 import types_pb2
from earvoice.policy.backends.replicas import BackendAccess, BackendKind, Replicas
from earvoice.policy.settings import parse_target

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def unavailable() -> grpc.aio.AioRpcError:
    """What a channel says when nobody is there."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing)


@dataclass
class FakeReplica:
    """A channel, and what is at its other end.

    Attributes:
        health: told to whoever asks; None while the process is gone.
        model_hash: of the model served.
        changed: set to make a running watch look again.
    """

    health: int | None = SERVING
    model_hash: str = "h1"
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, health: int | None) -> None:
        """Be otherwise from now on."""
        self.health = health
        self.changed.set()

    def unary_unary(self, path: str, **_):
        async def check(request, **_):
            return health_pb2.HealthCheckResponse(status=self._told())

        return check

    def unary_stream(self, path: str, **_):
        return lambda request: FakeWatch(self)

    async def close(self) -> None:
        """Nothing is open."""

    def _told(self) -> int:
        if self.health is None:
            raise unavailable()
        return self.health


class FakeWatch:
    """A stream of health, as grpc's call object."""

    def __init__(self, replica: FakeReplica) -> None:
        self._replica = replica
        self._task: asyncio.Task[None] | None = None

    async def __aiter__(self) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        self._task = asyncio.current_task()
        self._cancelled: asyncio.Event = asyncio.Event()
        while True:
            self._replica.changed.clear()
            yield health_pb2.HealthCheckResponse(status=self._replica._told())
            waits = [
                asyncio.ensure_future(event.wait())
                for event in (self._replica.changed, self._cancelled)
            ]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            if self._cancelled.is_set():
                raise asyncio.CancelledError

    def cancel(self) -> None:
        """End the stream as grpc does: whoever reads it is told so."""
        if self._task is not None:
            self._cancelled.set()


class FakeAccess(BackendAccess):
    """Gives the channels of a test."""

    def __init__(self, replicas: dict[str, FakeReplica]) -> None:
        super().__init__()
        object.__setattr__(self, "replicas", replicas)

    def open_channel(self, address: str):
        return self.replicas[address]  # type: ignore[attr-defined]

    def named(self, name: str) -> FakeAccess:
        return self


async def describe(channel: FakeReplica, metadata, timeout_s: float):
    """The model of a fake replica."""
    channel._told()
    model = types_pb2.ModelDescription(name="fake", hash=channel.model_hash)
    return encoder_pb.EncoderServiceDescribeModelResponse(model=model)


KIND = BackendKind("encoder", "Encoder", lambda channel, metadata: channel, describe)  # type: ignore[arg-type]


@dataclass
class RunningPool:
    """A pool, and how often it has changed."""

    pool: Replicas
    changed: asyncio.Event

    async def until_ready(self, *addresses: str) -> None:
        """Return when these replicas are ready and no others."""
        async with asyncio.timeout(120):
            while {replica.address for replica in self.pool.ready()} != set(addresses):
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def running_pool(
    replicas: dict[str, FakeReplica], target: str = ""
) -> AsyncIterator[RunningPool]:
    """Follow fake replicas."""
    changed = asyncio.Event()
    access = FakeAccess(replicas)
    pool = Replicas(KIND, parse_target(target or ",".join(replicas)), access, changed.set)
    running = asyncio.create_task(pool.run())
    try:
        yield RunningPool(pool, changed)
    finally:
        running.cancel()
        await asyncio.wait({running})
