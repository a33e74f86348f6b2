"""Names of metrics in Prometheus, and in its expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

from earvoice.telemetry.schema import Metric

_WORD = re.compile(r"\b(?:earvoice|up|ALERTS)[\w:]*(?![\w:]*=)")


def prometheus_names(metrics: Iterable[Metric]) -> set[str]:
    """Series that the real exporter makes of the metrics."""
    registry = CollectorRegistry()
    meter = MeterProvider([PrometheusMetricReader(registry=registry)]).get_meter("earvoice")
    for metric in metrics:
        match metric.instrument:
            case "histogram":
                meter.create_histogram(metric.name, metric.unit).record(1)
            case "counter":
                meter.create_counter(metric.name, metric.unit).add(1)
            case "gauge":
                meter.create_gauge(metric.name, metric.unit).set(1)
            case "up-down counter":
                meter.create_up_down_counter(metric.name, metric.unit).add(1)
    text = generate_latest(registry).decode()
    return {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")}


def names_in(expression: str) -> set[str]:
    """Metrics that an expression reads; what stands in quotes is a label's value."""
    return set(_WORD.findall(re.sub(r'"[^"]*"', '""', expression)))
