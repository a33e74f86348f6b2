"""An OTLP/gRPC endpoint of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from earvoice.latency.span import NS_PER_MS, AttributeValue, Span

_STOP_GRACE_S = 1.0
_LARGEST_MESSAGE_BYTES = 64 * 1024 * 1024


class _TraceService(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, take: Callable[[Iterable[Span]], None]) -> None:
        self._take = take

    async def Export(  # noqa: N802 - the name of the rpc
        self,
        request: trace_service_pb2.ExportTraceServiceRequest,
        context: grpc.aio.ServicerContext[
            trace_service_pb2.ExportTraceServiceRequest,
            trace_service_pb2.ExportTraceServiceResponse,
        ],
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        del context
        self._take(spans_of_message(request))
        return trace_service_pb2.ExportTraceServiceResponse()


@asynccontextmanager
async def receive_spans(address: str, take: Callable[[Iterable[Span]], None]) -> AsyncIterator[int]:
    """Give the port at which spans are received, and hand them on until the end."""
    options = [
        ("grpc.max_receive_message_length", _LARGEST_MESSAGE_BYTES),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(options=options)
    # Generated without types.
    add_service: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add_service(_TraceService(take), server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"cannot listen at {address}: {error}") from error
    await server.start()
    try:
        yield port
    finally:
        await server.stop(_STOP_GRACE_S)


def spans_of_message(request: trace_service_pb2.ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            yield from map(_span, scope.spans)


def _span(span: trace_pb2.Span) -> Span:
    return Span(
        name=span.name,
        trace_id=span.trace_id.hex(),
        start_ns=span.start_time_unix_nano,
        duration_ms=(span.end_time_unix_nano - span.start_time_unix_nano) / NS_PER_MS,
        attributes={pair.key: _value(pair.value) for pair in span.attributes},
        failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
    )


def _value(value: AnyValue) -> AttributeValue:
    match value.WhichOneof("value"):
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "bool_value":
            return value.bool_value
        case "array_value":
            return tuple(map(_value, value.array_value.values))
    return value.string_value
