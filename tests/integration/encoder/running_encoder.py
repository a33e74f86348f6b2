"""The real servicer on a free port, and a client of it."""

from __future__ import annotations

import asyncio
import dataclasses

import grpc

from earvoice.api.v1 import encoder_service_pb2_grpc
from earvoice.encoder.model import EncoderModel
from earvoice.encoder.service import SERVICE_NAME, EncoderService
from earvoice.encoder.settings import EncoderSettings
from earvoice.runtime.engine import EngineThread
from earvoice.runtime.server import ServiceServer
from earvoice.runtime.session_limit import SessionLimit
from earvoice.runtime.transport import channel_options

SESSION_LIMIT = 3
MAX_UTTERANCE_MS = 10_000


@dataclasses.dataclass
class RunningEncoder:
    """The real servicer on a free port, and a client of it."""

    stub: encoder_service_pb2_grpc.EncoderServiceStub
    channel: grpc.aio.Channel
    limit: SessionLimit
    service: EncoderService

    async def ask(self, *requests):
        """Send requests one after the other, each after the answer to the one before."""
        call = self.stub.Encode()
        answers = []
        for request in requests:
            await call.write(request)
            answers.append(await call.read())
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        return answers


async def start_encoder(
    settings: EncoderSettings, model: EncoderModel | None, engine: EngineThread | None = None
):
    engine = engine or EngineThread("test-encoder")
    service = EncoderService(settings, engine)
    server = ServiceServer(settings, [SERVICE_NAME])
    encoder_service_pb2_grpc.add_EncoderServiceServicer_to_server(service, server.grpc_server)
    port = await server.start()
    if model is not None:
        service.serve(model)
        await server.set_serving(serving=True)
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=channel_options())
    stub = encoder_service_pb2_grpc.EncoderServiceStub(channel)

    async def stop() -> None:
        await channel.close()
        await server.grpc_server.stop(grace=0)
        await asyncio.to_thread(engine.close)

    return RunningEncoder(stub, channel, service.sessions, service), stop
