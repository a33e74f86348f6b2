"""A service of the chassis that answers at once, with any settings, certificates and secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import encoder_service_pb2_grpc as pb_grpc
from earvoice.runtime.authentication import current_tenant
from earvoice.runtime.server import ServiceServer
from earvoice.runtime.settings import ServiceSettings

SERVICE = "earvoice.api.v1.EncoderService"


class PlainService(pb_grpc.EncoderServiceServicer):
    """Says whose calls it served."""

    def __init__(self) -> None:
        self.tenants: list[str] = []

    async def DescribeModel(self, request, context):
        self.tenants.append(current_tenant())
        return pb.EncoderServiceDescribeModelResponse()

    async def Encode(self, request_iterator, context) -> AsyncIterator[pb.EncodeResponse]:
        async for _ in request_iterator:
            self.tenants.append(current_tenant())
            yield pb.EncodeResponse()


@asynccontextmanager
async def plain_service(settings: ServiceSettings, authenticator=None):
    service = PlainService()
    server = ServiceServer(settings, [SERVICE], authenticator=authenticator)
    pb_grpc.add_EncoderServiceServicer_to_server(service, server.grpc_server)
    port = await server.start()
    try:
        yield service, port
    finally:
        await server.stop()
