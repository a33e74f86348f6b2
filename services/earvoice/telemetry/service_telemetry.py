"""A service's telemetry, opened from its settings and the standard `OTEL_*` variables."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry.metrics import NoOpMeter

from earvoice.runtime.bootstrap import cannot_listen
from earvoice.runtime.machine import descriptor_limit, open_descriptors
from earvoice.runtime.settings import ProcessSettings
from earvoice.telemetry.metering import Meters
from earvoice.telemetry.schema import SERVICE_NAMES, Service

# The SDK and its exporters are imported where they are wanted: they take a third of a second.
if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter

    from earvoice.telemetry.metric_export import MetricExport
    from earvoice.telemetry.tracing import Tracer

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class ServiceTelemetry:
    """What a service reports to its operators.

    Attributes:
        tracer: None where spans have nowhere to go.
        trace_ratio: share of sessions that are traced if there is a tracer.
    """

    def __init__(self, service: Service, settings: ProcessSettings) -> None:
        # Its exporters write a line or more for every failure; `ExportLosses` writes one.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        losses = ExportLosses()
        self.dropped = losses.dropped
        self._metrics = _metric_export(service, losses, settings)
        self.tracer = _tracer(service, losses, settings)
        self.trace_ratio = settings.trace_ratio
        meter = self._metrics.provider.get_meter("earvoice") if self._metrics else NoOpMeter("")
        self.meters = Meters(service, meter)
        self.meters.observe("earvoice.telemetry.dropped", lambda: dict(self.dropped))
        self.meters.observe("earvoice.descriptors.open", lambda: {"": open_descriptors()})
        self.meters.observe("earvoice.descriptors.limit", lambda: {"": descriptor_limit()})

    @property
    def has_metrics(self) -> bool:
        return self._metrics is not None

    def close(self) -> None:
        """Send waiting telemetry, for some seconds at most."""
        if self.tracer is not None:
            self.tracer.close()
        if self._metrics is not None:
            self._metrics.close()


def _metric_export(
    service: Service, losses: ExportLosses, settings: ProcessSettings
) -> MetricExport | None:
    to_collector = _has_collector("metrics")
    if not (to_collector or settings.metrics_port):
        return None
    from earvoice.telemetry.metric_export import MetricExport  # noqa: PLC0415

    export = MetricExport(_resource(service), losses, to_collector=to_collector)
    if settings.metrics_port:
        try:
            export.listen(settings.host, settings.metrics_port)
        except OSError as error:
            export.close()
            raise cannot_listen(settings, "metrics_port", error) from error
    return export


def _tracer(service: Service, losses: ExportLosses, settings: ProcessSettings) -> Tracer | None:
    exporter: SpanExporter
    if _has_collector("traces"):
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )

        exporter = OTLPSpanExporter()
    elif settings.trace_file is not None:
        from earvoice.telemetry.tracing import SpanFileExporter  # noqa: PLC0415

        try:
            exporter = SpanFileExporter(settings.trace_file)
        except OSError as error:
            raise OSError(f"{settings.variable('trace_file')}: {error}") from error
    else:
        return None
    from earvoice.telemetry.tracing import Tracer  # noqa: PLC0415

    return Tracer(_resource(service), exporter, losses)


def _has_collector(signal: str) -> bool:
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp") == "none":
        return False
    return bool(_endpoint(signal))


def _endpoint(signal: str) -> str:
    """The variable that names a signal's collector, with its value; empty where none does."""
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
    found = ((name, os.environ.get(name)) for name in (own, _ENDPOINT))
    return next((f"{name} = {value}" for name, value in found if value), "")


def _resource(service: Service) -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    name = os.environ.get("OTEL_SERVICE_NAME") or SERVICE_NAMES[service]
    return Resource.create({"service.name": name, "service.version": version("earvoice")})


CLOSE_TIMEOUT_S = 2.0
"""How long waiting telemetry may take to go out when a service stops."""

_LOG = logging.getLogger("earvoice.telemetry")


class ExportLosses:
    """Counts what could not be exported; logs when it begins and when it is over, not each time."""

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        self._failing: set[str] = set()
        self._lock = threading.Lock()

    def lose(self, signal: str, count: int, reason: str) -> None:
        with self._lock:
            self.dropped[signal] += count
            begins = signal not in self._failing
            self._failing.add(signal)
        if begins:
            _LOG.warning("telemetry is lost", extra={"signal": signal, "reason": reason})

    def refuse(self, signal: str, count: int) -> None:
        """Lose what the collector does not take: a wrong address is the likeliest cause."""
        self.lose(signal, count, f"no collector takes them at {_endpoint(signal)}")

    def recover(self, signal: str) -> None:
        if signal not in self._failing:
            return
        with self._lock:
            self._failing.discard(signal)
        dropped = self.dropped[signal]
        _LOG.info("telemetry goes out again", extra={"signal": signal, "dropped": dropped})
