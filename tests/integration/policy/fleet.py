"""A policy service in front of several scripted replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from earvoice.api.v1 import speech_translation_service_pb2_grpc as public_grpc
from earvoice.api.v1 import types_pb2
from earvoice.policy.backends import Backends
from earvoice.policy.backends.call import BackendTimeouts
from earvoice.policy.service import SERVICE_NAME, SpeechTranslationService
from earvoice.policy.settings import PolicySettings
from earvoice.runtime.server import ServiceServer
from earvoice.runtime.session_limit import SessionLimit
from earvoice.runtime.transport import PUBLIC_MESSAGE_LIMIT_BYTES
from earvoice.telemetry.service_telemetry import ServiceTelemetry
from tests.integration.policy.scripted_backends import ScriptedReplica, scripted_replica

TIMEOUTS = BackendTimeouts(answer_s=0.6, slow_answer_s=20.0, replacement_s=5.0, opening_s=2.0)


@dataclass
class Fleet:
    """What a test needs of it."""

    address: str
    encoders: Sequence[ScriptedReplica]
    decoders: Sequence[ScriptedReplica]
    backends: Backends

    def replicas(self, service: str) -> Sequence[ScriptedReplica]:
        return self.encoders if service == "encoder" else self.decoders

    def busy(self, service: str) -> ScriptedReplica:
        (busy,) = (r for r in self.replicas(service) if r.servicer.session_count)
        return busy

    def idle(self, service: str) -> ScriptedReplica:
        return next(r for r in self.replicas(service) if not r.servicer.session_count)


async def serve_policy(
    stack: AsyncExitStack, settings: PolicySettings, backends: Backends
) -> tuple[str, SpeechTranslationService, ServiceTelemetry]:
    """Give the address of a policy service, it and its telemetry; all end with the stack."""
    following = asyncio.create_task(backends.run())

    async def close_backends() -> None:
        following.cancel()
        await asyncio.wait({following})

    stack.push_async_callback(close_backends)
    telemetry = ServiceTelemetry("policy", settings)
    sessions = SessionLimit(settings.session_limit)
    telemetry.meters.observe_sessions(sessions)
    service = SpeechTranslationService(settings, backends, sessions, telemetry)
    server = ServiceServer(settings, [SERVICE_NAME], PUBLIC_MESSAGE_LIMIT_BYTES)
    public_grpc.add_SpeechTranslationServiceServicer_to_server(service, server.grpc_server)
    port = await server.start()
    stack.push_async_callback(server.grpc_server.stop, None)
    return f"127.0.0.1:{port}", service, telemetry


@asynccontextmanager
async def running_fleet(
    encoder_count: int = 2,
    decoder_count: int = 2,
    timeouts: BackendTimeouts = TIMEOUTS,
    models: Sequence[types_pb2.ModelDescription] = (),
) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        encoders = [scripted_replica("encoder") for _ in range(encoder_count)]
        decoders = [scripted_replica("decoder") for _ in range(decoder_count)]
        for replicas in (encoders, decoders):
            for replica, model in zip(replicas, models, strict=False):
                replica.servicer.model = model
        for replica in (*encoders, *decoders):
            await replica.start()
            stack.push_async_callback(replica.die)
        targets = [
            ",".join(replica.address for replica in replicas) for replicas in (encoders, decoders)
        ]
        backends = Backends(*targets, timeouts=timeouts)
        address, _, _ = await serve_policy(stack, PolicySettings(port=0), backends)
        await all_ready(backends, encoder_count, decoder_count)
        yield Fleet(address, encoders, decoders, backends)


async def all_ready(backends: Backends, encoder_count: int, decoder_count: int) -> None:
    """Return when so many replicas are ready."""
    wanted = {"encoder": encoder_count, "decoder": decoder_count}
    while backends.ready_counts() != wanted:
        await backends.changed()
