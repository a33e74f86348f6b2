"""Spans from the messages of OTLP/gRPC."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from earvoice.latency.span import AttributeValue, Span

_NS_PER_MS = 1e6


def spans_of_message(request: ExportTraceServiceRequest) -> Iterator[Span]:
    """Yield the spans of a message."""
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            yield from map(_span, scope.spans)


def _span(span: trace_pb2.Span) -> Span:
    return Span(
        name=span.name,
        trace_id=span.trace_id.hex(),
        start_ns=span.start_time_unix_nano,
        duration_ms=(span.end_time_unix_nano - span.start_time_unix_nano) / _NS_PER_MS,
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
