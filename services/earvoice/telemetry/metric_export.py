"""Who reads a process's metrics: Prometheus at an endpoint of ours, an OTLP collector, nobody."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, start_http_server

from earvoice.telemetry.service_telemetry import CLOSE_TIMEOUT_S, ExportLosses


class CountedMetricExporter(OTLPMetricExporter):
    """Counts the readings that it could not send."""

    def __init__(self, losses: ExportLosses) -> None:
        super().__init__()
        self._losses = losses

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object
    ) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis, **kwargs)
        if result is MetricExportResult.SUCCESS:
            self._losses.recover("metrics")
        else:
            self._losses.refuse("metrics", 1)
        return result


class MetricExport:
    """A process's metrics and their readers."""

    def __init__(self, resource: Resource, losses: ExportLosses, *, to_collector: bool) -> None:
        self._registry = CollectorRegistry()
        self._exporter = CountedMetricExporter(losses) if to_collector else None
        readers: Sequence[MetricReader] = [PrometheusMetricReader(registry=self._registry)]
        if self._exporter is not None:
            readers = [*readers, PeriodicExportingMetricReader(self._exporter)]
        self.provider = MeterProvider(readers, resource, shutdown_on_exit=False)

    def listen(self, host: str, port: int) -> None:
        """Answer Prometheus at `/metrics`, from a thread of its own."""
        start_http_server(port, host, self._registry)

    def close(self) -> None:
        """Send a last reading, for two seconds at most."""
        # The reader waits for a stalled collector longer than a service may take to stop.
        closing = threading.Thread(target=self.provider.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)
        if closing.is_alive() and self._exporter is not None:
            self._exporter.shutdown()
