"""The real policy service on a free port, between a client and scripted backends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from earvoice.policy.backends import Backends
from earvoice.policy.service import SpeechTranslationService
from earvoice.policy.settings import PolicySettings
from earvoice.telemetry.service_telemetry import ServiceTelemetry
from tests.integration.policy.fleet import serve_policy
from tests.integration.policy.scripted_backends import ScriptedDecoder, ScriptedEncoder, serve


@dataclass
class RunningPolicy:
    address: str
    service: SpeechTranslationService
    encoder: ScriptedEncoder
    decoder: ScriptedDecoder
    telemetry: ServiceTelemetry

    async def wait_until_idle(self) -> None:
        """Return when neither backend has a session any more; a test that waits in vain fails."""
        async with asyncio.timeout(120):
            await self.encoder.idle.wait()
            await self.decoder.idle.wait()


Start = Callable[..., Awaitable[RunningPolicy]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def start_one(**changes: object) -> RunningPolicy:
            encoder, decoder = ScriptedEncoder(), ScriptedDecoder()
            encoder.gate.set()
            decoder.gate.set()
            backend_server, target = await serve(encoder, decoder)
            stack.push_async_callback(backend_server.stop, None)
            settings = PolicySettings(
                port=0, encoder_target=target, decoder_target=target, **changes
            )
            backends = Backends(target, target)
            address, service, telemetry = await serve_policy(stack, settings, backends)
            await backends.wait_until_ready()
            return RunningPolicy(address, service, encoder, decoder, telemetry)

        yield start_one


@pytest.fixture
async def running(start: Start) -> RunningPolicy:
    return await start()
