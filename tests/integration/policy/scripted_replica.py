"""A replica of the encoder or the decoder on a port of its own, which can be made to fail."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from earvoice.api.v1 import decoder_service_pb2 as decoder_pb
from earvoice.api.v1 import decoder_service_pb2_grpc as decoder_grpc
from earvoice.api.v1 import encoder_service_pb2 as encoder_pb
from earvoice.api.v1 import encoder_service_pb2_grpc as encoder_grpc
from earvoice.runtime.errors import EarvoiceError
from earvoice.runtime.status import StatusInterceptor
from earvoice.runtime.transport import MESSAGE_LIMIT_BYTES, server_options
from tests.integration.policy.scripted_backends import ScriptedDecoder, ScriptedEncoder

ENCODER_NAME = encoder_pb.DESCRIPTOR.services_by_name["EncoderService"].full_name
DECODER_NAME = decoder_pb.DESCRIPTOR.services_by_name["DecoderService"].full_name


class HealthThatMayFallSilent(health.aio.HealthServicer):
    """Answers nothing while its process is stopped.

    Attributes:
        gate: shut while it is.
        asked: set when somebody asks how it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def Check(self, request, context):
        await self.gate.wait()
        self.asked.set()
        return await super().Check(request, context)

    async def Watch(self, request, context):
        await self.gate.wait()
        await super().Watch(request, context)


@dataclass
class ScriptedReplica:
    """One replica.

    Attributes:
        servicer: plays the script.
        health: tells its health.
        port: where it listens; 0 before the first start, kept afterwards.
    """

    servicer: ScriptedEncoder | ScriptedDecoder
    health: HealthThatMayFallSilent
    port: int = 0
    server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def service(self) -> str:
        """`encoder` or `decoder`."""
        return "encoder" if isinstance(self.servicer, ScriptedEncoder) else "decoder"

    @property
    def _name(self) -> str:
        return ENCODER_NAME if self.service == "encoder" else DECODER_NAME

    async def start(self) -> None:
        """Listen and serve."""
        self.server = grpc.aio.server(
            interceptors=[StatusInterceptor(write_timeout_s=10)],
            options=server_options(MESSAGE_LIMIT_BYTES),
        )
        if isinstance(self.servicer, ScriptedEncoder):
            encoder_grpc.add_EncoderServiceServicer_to_server(self.servicer, self.server)
        else:
            decoder_grpc.add_DecoderServiceServicer_to_server(self.servicer, self.server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        self.port = self.server.add_insecure_port(self.address)
        await self.server.start()
        await self.tell(serving=True)

    async def tell(self, *, serving: bool) -> None:
        """Tell its health from now on."""
        status = health_pb2.HealthCheckResponse
        value = status.SERVING if serving else status.NOT_SERVING
        await self.health.set(self._name, value)

    async def die(self) -> None:
        """Be gone, with every connection."""
        assert self.server is not None
        await self.server.stop(None)

    def stop(self) -> None:
        """Answer nothing any more, as a process does that is stopped."""
        self.servicer.gate.clear()
        self.health.gate.clear()

    def fail(self, failure: EarvoiceError | grpc.StatusCode) -> None:
        """Fail from the next answer on."""
        self.servicer.failure = failure


def scripted_replica(service: str) -> ScriptedReplica:
    """A replica that has not been started."""
    servicer = ScriptedEncoder() if service == "encoder" else ScriptedDecoder()
    servicer.gate.set()
    return ScriptedReplica(servicer, HealthThatMayFallSilent())
