"""Stands for a policy service: tells its name at once, then answers each message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import speech_translation_service_pb2_grpc as public_grpc

HEADER = "x-earvoice-session"
SERVICE = pb.DESCRIPTOR.services_by_name["SpeechTranslationService"].full_name


class NamedService(public_grpc.SpeechTranslationServiceServicer):
    """A replica that says which it is."""

    def __init__(self, name: str, credentials: grpc.ServerCredentials | None = None) -> None:
        self.name = name
        self.is_full = False
        self.asked = 0
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server()
        public_grpc.add_SpeechTranslationServiceServicer_to_server(self, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        port = (
            self._server.add_secure_port("127.0.0.1:0", credentials)
            if credentials
            else self._server.add_insecure_port("127.0.0.1:0")
        )
        self.address = f"127.0.0.1:{port}"

    async def StreamingTranslate(
        self,
        requests: AsyncIterator[pb.StreamingTranslateRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[pb.StreamingTranslateResponse]:
        """Answer, or refuse as a replica does that is full."""
        self.asked += 1
        if self.is_full:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        name = pb.StreamingTranslateResponse(
            session_started=pb.SessionStarted(session_id=self.name)
        )
        yield name
        async for _ in requests:
            yield name

    async def serve(self, *, serving: bool = True) -> None:
        status = health_pb2.HealthCheckResponse
        await self._health.set(SERVICE, status.SERVING if serving else status.NOT_SERVING)

    async def start(self) -> None:
        await self.serve()
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(grace=None)


@asynccontextmanager
async def named_services(
    count: int, credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[list[NamedService]]:
    services = [NamedService(str(number), credentials) for number in range(count)]
    try:
        for service in services:
            await service.start()
        yield services
    finally:
        for service in services:
            await service.stop()


async def replica_of(channel: grpc.aio.Channel, session: str) -> str:
    """Who answers a session, whose stream has then come to its end."""
    call = public_grpc.SpeechTranslationServiceStub(channel).StreamingTranslate(
        metadata=[(HEADER, session)]
    )
    # Nothing is written: where the call has ended by then, grpc.aio tells of that, not of the end.
    answer = await call.read()
    # A stream that Envoy still counts turns the next one away from its replica.
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    return answer.session_started.session_id
