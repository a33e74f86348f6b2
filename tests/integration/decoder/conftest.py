"""The real servicer on a free port, over a tiny checkpoint or over any strategy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from earvoice.api.v1.decoder_service_pb2_grpc import (
    DecoderServiceStub,
    add_DecoderServiceServicer_to_server,
)
from earvoice.decoder.engine import DecoderEngine
from earvoice.decoder.loading import LoadedDecoder, load_decoder
from earvoice.decoder.service import SERVICE_NAME, DecoderService
from earvoice.decoder.settings import DecoderSettings
from earvoice.decoder.strategy import ServedModel, Strategy
from earvoice.runtime.server import ServiceServer
from tests.integration.decoder.caller import Caller
from tests.tiny_model import WIDTH


@dataclass
class RunningDecoder:
    """A served decoder and one channel to it."""

    service: DecoderService
    address: str
    channel: grpc.aio.Channel
    stub: Any

    def caller(self) -> Caller:
        return Caller(self.stub.Decode())


Serve = Callable[..., Any]


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> LoadedDecoder:
    return load_decoder(DecoderSettings(model_path=tiny_path, device="cpu"))


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves a model with a strategy; all servers are stopped after the test."""
    async with AsyncExitStack() as stack:

        async def start(model: ServedModel, strategy: Strategy, **settings: Any) -> RunningDecoder:
            return await stack.enter_async_context(_running(model, strategy, settings))

        yield start


@pytest.fixture
async def decoder(serve: Serve, tiny: LoadedDecoder) -> RunningDecoder:
    running = await serve(tiny.model, tiny.strategy)
    assert isinstance(running, RunningDecoder)
    return running


@asynccontextmanager
async def _running(
    model: ServedModel, strategy: Strategy, changes: dict[str, Any]
) -> AsyncIterator[RunningDecoder]:
    settings = DecoderSettings(**({"port": 0, "session_limit": 16} | changes))
    server = ServiceServer(settings, [SERVICE_NAME])
    service = DecoderService(settings)
    add_DecoderServiceServicer_to_server(service, server.grpc_server)
    port = await server.start()
    engine = DecoderEngine(strategy)
    engine.start()
    service.serve(model, engine)
    await server.set_serving(serving=True)
    address = f"127.0.0.1:{port}"
    async with grpc.aio.insecure_channel(address) as channel:
        yield RunningDecoder(service, address, channel, DecoderServiceStub(channel))
    await server.grpc_server.stop(grace=None)
    await asyncio.wait_for(engine.close(), 120)


def random_states(seed: int, count: int | None = None) -> np.ndarray:
    """States of the tiny model, [count, d] float32, different for each seed."""
    generator = np.random.default_rng(seed)
    shape = (count or int(generator.integers(2, 30)), WIDTH)
    return generator.normal(size=shape).astype(np.float32)
