"""An OTLP/gRPC endpoint of our own."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from earvoice.latency.span import Span, spans_of

_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"

_STOP_GRACE_S = 1.0
_LARGEST_MESSAGE_BYTES = 64 * 1024 * 1024


@asynccontextmanager
async def receive_spans(address: str, take: Callable[[Iterable[Span]], None]) -> AsyncIterator[int]:
    """Yield the port at which spans are received; pass them on until the context ends."""

    async def answer(request: ExportTraceServiceRequest, _: object) -> ExportTraceServiceResponse:
        take(spans_of_message(request))
        return ExportTraceServiceResponse()

    options = [
        ("grpc.max_receive_message_length", _LARGEST_MESSAGE_BYTES),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(options=options)
    export = grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=ExportTraceServiceRequest.FromString,
        response_serializer=ExportTraceServiceResponse.SerializeToString,
    )
    service = grpc.method_handlers_generic_handler(_SERVICE, {"Export": export})
    server.add_generic_rpc_handlers((service,))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"cannot listen at {address}: {error}") from error
    await server.start()
    try:
        yield port
    finally:
        await server.stop(_STOP_GRACE_S)


def spans_of_message(request: ExportTraceServiceRequest) -> Iterator[Span]:
    # Ids are base64 in protobuf's JSON, and hex everywhere else.
    return spans_of(MessageToDict(request), lambda trace_id: b64decode(trace_id).hex())
