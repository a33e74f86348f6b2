"""The real policy service on a free port, between a client and scripted backends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from earvoice.api.v1 import speech_translation_service_pb2_grpc as public_grpc
from earvoice.policy.backends import Backends
from earvoice.policy.service import SERVICE_NAME, SpeechTranslationService
from earvoice.policy.settings import PolicySettings
from earvoice.runtime.server import ServiceServer
from earvoice.runtime.session_limit import SessionLimit
from earvoice.runtime.transport import PUBLIC_MESSAGE_LIMIT_BYTES
from earvoice.telemetry.service_telemetry import ServiceTelemetry
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
            stack.push_async_callback(backends.close)
            telemetry = ServiceTelemetry("policy", settings)
            sessions = SessionLimit(settings.session_limit)
            telemetry.meters.observe_sessions(sessions)
            service = SpeechTranslationService(settings, backends, sessions, telemetry)
            server = ServiceServer(settings, [SERVICE_NAME], PUBLIC_MESSAGE_LIMIT_BYTES)
            public_grpc.add_SpeechTranslationServiceServicer_to_server(service, server.grpc_server)
            port = await server.start()
            stack.push_async_callback(server.grpc_server.stop, None)
            backends.start()
            await backends.wait_until_ready()
            return RunningPolicy(f"127.0.0.1:{port}", service, encoder, decoder, telemetry)

        yield start_one


@pytest.fixture
async def running(start: Start) -> RunningPolicy:
    return await start()
