"""A service's telemetry, opened from its settings and the standard `OTEL_*` variables."""

from __future__ import annotations

import logging
import os
from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry.metrics import NoOpMeter

from earvoice.runtime.settings import ServiceSettings
from earvoice.telemetry.export_losses import ExportLosses
from earvoice.telemetry.metering import Meters
from earvoice.telemetry.sampling import SessionSampler
from earvoice.telemetry.schema import SERVICE_NAMES, Service

# The SDK and its exporters are imported where they are wanted: they take a third of a second.
if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter

    from earvoice.telemetry.exporting import SpanQueue
    from earvoice.telemetry.metric_export import MetricExport
    from earvoice.telemetry.tracing import Tracer

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class ServiceTelemetry:
    """What a service tells its operators.

    Args:
        service: who.
        settings: ratio, file and port.

    Attributes:
        tracer: None where spans have nowhere to go.
        sampler: draws which sessions are traced.
        meters: the service's metrics; void where nobody reads them.
        dropped: spans, and readings of the metrics, that could not be exported, by signal.

    Raises:
        OSError: the file cannot be written, or the port not be bound.
    """

    def __init__(self, service: Service, settings: ServiceSettings) -> None:
        # Its exporters write a line or more for every failure; `ExportLosses` writes one.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        losses = ExportLosses()
        self.dropped = losses.dropped
        self._metrics = _metric_export(service, losses, settings)
        self._queue = _span_queue(settings, losses)
        self.tracer = _tracer(service, self._queue) if self._queue is not None else None
        self.sampler = SessionSampler(settings.trace_ratio if self.tracer else 0.0)
        meter = self._metrics.provider.get_meter("earvoice") if self._metrics else NoOpMeter("")
        self.meters = Meters(service, meter)
        self.meters.observe("earvoice.telemetry.dropped", lambda: dict(self.dropped))

    @property
    def has_metrics(self) -> bool:
        """Whether anybody reads the metrics."""
        return self._metrics is not None

    def close(self) -> None:
        """Send what waits, for some seconds at most."""
        if self._queue is not None:
            self._queue.close()
        if self._metrics is not None:
            self._metrics.close()


def _metric_export(
    service: Service, losses: ExportLosses, settings: ServiceSettings
) -> MetricExport | None:
    to_collector = _has_collector("METRICS")
    if not (to_collector or settings.metrics_port):
        return None
    from earvoice.telemetry.metric_export import MetricExport  # noqa: PLC0415

    export = MetricExport(_resource(service), losses, to_collector=to_collector)
    if settings.metrics_port:
        export.listen(settings.host, settings.metrics_port)
    return export


def _tracer(service: Service, queue: SpanQueue) -> Tracer:
    from earvoice.telemetry.tracing import Tracer  # noqa: PLC0415

    return Tracer(_resource(service), queue)


def _span_queue(settings: ServiceSettings, losses: ExportLosses) -> SpanQueue | None:
    exporter: SpanExporter | None = None
    if _has_collector("TRACES"):
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )

        exporter = OTLPSpanExporter()
    elif settings.trace_file is not None:
        from earvoice.telemetry.span_file import SpanFileExporter  # noqa: PLC0415

        exporter = SpanFileExporter(settings.trace_file)
    if exporter is None:
        return None
    from earvoice.telemetry.exporting import SpanQueue  # noqa: PLC0415

    return SpanQueue(exporter, losses)


def _has_collector(signal: str) -> bool:
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp") == "none":
        return False
    return bool(
        os.environ.get(_ENDPOINT) or os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    )


def _resource(service: Service) -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    name = os.environ.get("OTEL_SERVICE_NAME") or SERVICE_NAMES[service]
    return Resource.create({"service.name": name, "service.version": version("earvoice")})
