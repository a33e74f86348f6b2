"""An OTLP collector that does what it is told: takes, refuses or stalls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector(trace_grpc.TraceServiceServicer, metrics_grpc.MetricsServiceServicer):
    """Keeps what it is sent.

    Attributes:
        refuses: answers with an error that forbids another try.
        asked: set once anything has come.
    """

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    refuses: bool = False
    spans: list[Span] = field(default_factory=list)
    metrics: list[metrics_pb.ExportMetricsServiceRequest] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def Export(self, request, context):
        """Both services' method; the message tells them apart."""
        self.asked.set()
        await self.gate.wait()
        if self.refuses:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not for you")
        if isinstance(request, trace_pb.ExportTraceServiceRequest):
            self.spans += [
                span
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]
            return trace_pb.ExportTraceServiceResponse()
        self.metrics.append(request)
        return metrics_pb.ExportMetricsServiceResponse()


@asynccontextmanager
async def serve_collector(collector: Collector) -> AsyncIterator[str]:
    server = grpc.aio.server()
    trace_grpc.add_TraceServiceServicer_to_server(collector, server)
    metrics_grpc.add_MetricsServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop(None)
