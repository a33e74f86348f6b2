"""Metrics of one process: the schema's instruments, read by Prometheus and by OTLP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Histogram, Observation
from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context

from earvoice.runtime.engine import EngineLoad
from earvoice.runtime.session_limit import SessionLimit
from earvoice.telemetry.schema import METRICS, Service

Reading = Callable[[], Mapping[str, float]]
"""Values by the metric's attribute; a metric without one has the empty key."""

_DECLARED = {metric.name: metric for metric in METRICS}


class Meters:
    """The instruments of one service, made by one of OpenTelemetry's meters."""

    def __init__(self, service: Service, meter: metrics.Meter) -> None:
        self._meter = meter
        self._histograms: dict[str, Histogram] = {}
        self._counters: dict[str, metrics.Counter] = {}
        for metric in METRICS:
            if service in metric.services and metric.instrument == "histogram":
                self._histograms[metric.name] = meter.create_histogram(
                    metric.name,
                    metric.unit,
                    metric.meaning,
                    explicit_bucket_boundaries_advisory=metric.bounds,
                )

    def record(
        self, name: str, value: float, kind: str = "", context: Context | None = None
    ) -> None:
        """Add a value to a histogram; the context is the trace that an exemplar leads to."""
        attributes = {_DECLARED[name].attribute: kind} if kind else None
        self._histograms[name].record(value, attributes, context)

    def count(self, name: str, amount: int, kind: str = "") -> None:
        if name not in self._counters:
            metric = _DECLARED[name]
            self._counters[name] = self._meter.create_counter(name, metric.unit, metric.meaning)
        self._counters[name].add(amount, {_DECLARED[name].attribute: kind} if kind else None)

    def observe_sessions(
        self, sessions: SessionLimit, refused_behind: Mapping[str, int] | None = None
    ) -> None:
        """Export the number of sessions, their limit, and how many were refused.

        Args:
            refused_behind: sessions accepted here and refused by a service behind, by reason.
        """
        self.observe("earvoice.sessions.active", lambda: {"": sessions.active})
        self.observe("earvoice.sessions.limit", lambda: {"": sessions.limit})
        # Zeros too: an alert sees no increase in a series that begins with its first refusal.
        none = dict.fromkeys(_DECLARED["earvoice.sessions.refused"].values, 0)
        behind = refused_behind if refused_behind is not None else {}

        def refused() -> dict[str, int]:
            return none | Counter(sessions.refused) + Counter(behind)

        self.observe("earvoice.sessions.refused", refused)

    def observe_engine(self, load: EngineLoad) -> None:
        self.observe("earvoice.engine.busy_ratio", lambda: {"": load.busy_ratio()})
        self.observe("earvoice.engine.queue_depth", lambda: {"": load.waiting_count()})
        load.on_batch = lambda size: self.record("earvoice.engine.batch_size", size)

    def observe(self, name: str, read: Reading) -> None:
        """Export a metric that is read at each collection: a gauge, or a count kept elsewhere."""
        metric = _DECLARED[name]

        def callback(options: CallbackOptions) -> Iterable[Observation]:
            del options
            for kind, value in read().items():
                yield Observation(value, {metric.attribute: kind} if kind else None)

        create = {
            "gauge": self._meter.create_observable_gauge,
            "counter": self._meter.create_observable_counter,
            "up-down counter": self._meter.create_observable_up_down_counter,
        }[metric.instrument]
        create(name, [callback], metric.unit, metric.meaning)


def exemplar_context(span: SpanContext | None) -> Context | None:
    """Return the context that makes an exemplar of a measurement; None for no span."""
    return set_span_in_context(NonRecordingSpan(span)) if span is not None else None
