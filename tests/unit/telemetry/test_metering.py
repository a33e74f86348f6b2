"""The schema's instruments."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from earvoice.runtime.engine import EngineLoad
from earvoice.runtime.errors import SessionLimitError
from earvoice.runtime.session_limit import SessionLimit
from earvoice.telemetry.metering import Meters, exemplar_context
from earvoice.telemetry.schema import METRICS
from earvoice.telemetry.trace_context import new_root


class Metered:
    def __init__(self, service) -> None:
        self._reader = InMemoryMetricReader()
        provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self.meters = Meters(service, provider.get_meter("tested"))

    def read(self) -> dict[str, list]:
        data = self._reader.get_metrics_data()
        scopes = data.resource_metrics[0].scope_metrics if data else []
        return {m.name: list(m.data.data_points) for scope in scopes for m in scope.metrics}


@pytest.mark.parametrize("metric", [m for m in METRICS if m.instrument == "histogram"])
def test_a_histogram_has_the_declared_buckets_and_attribute(metric):
    """And leads to the trace that it was measured in."""
    metered, span = Metered(metric.services[0]), new_root()
    kind = (metric.values or ("",))[0] if metric.attribute else ""
    metered.meters.record(metric.name, 3.0, kind, exemplar_context(span))
    (point,) = metered.read()[metric.name]
    assert tuple(point.explicit_bounds) == metric.bounds
    assert dict(point.attributes) == ({metric.attribute: kind} if kind else {})
    assert [exemplar.trace_id for exemplar in point.exemplars] == [span.trace_id]


def test_an_engines_load_is_read():
    """Busy ratio, queue and batches."""
    metered, load = Metered("decoder"), EngineLoad(lambda: 3)
    metered.meters.observe_engine(load)
    load.record(1000.0, 4)
    points = metered.read()
    assert points["earvoice.engine.busy_ratio"][0].value == 1.0
    assert points["earvoice.engine.queue_depth"][0].value == 3
    assert points["earvoice.engine.batch_size"][0].sum == 4


def test_every_reader_sees_the_engines_load():
    """One that has just read it takes nothing from the next."""
    metered, load = Metered("encoder"), EngineLoad(lambda: 0)
    metered.meters.observe_engine(load)
    load.record(1000.0, 1)
    readings = [metered.read()["earvoice.engine.busy_ratio"][0].value for _ in range(2)]
    assert readings == [1.0, 1.0]


def test_sessions_that_run_and_that_are_refused_are_counted():
    """By the reason that the client is told."""
    metered, sessions = Metered("encoder"), SessionLimit(1)
    metered.meters.observe_sessions(sessions)
    with sessions.admit(), pytest.raises(SessionLimitError), sessions.admit():
        pass
    with sessions.admit():
        points = metered.read()
    assert points["earvoice.sessions.active"][0].value == 1
    refused = {p.attributes["reason"]: p.value for p in points["earvoice.sessions.refused"]}
    assert refused == {
        "SESSION_LIMIT": 1,
        "TENANT_LIMIT": 0,
        "NOT_READY": 0,
        "BACKEND_UNAVAILABLE": 0,
        "MODEL_MISMATCH": 0,
    }


def test_sessions_that_a_service_behind_refused_are_counted_too():
    """They were not taken either."""
    metered, sessions = Metered("policy"), SessionLimit(1)
    metered.meters.observe_sessions(sessions, {"SESSION_LIMIT": 2, "MODEL_MISMATCH": 1})
    with sessions.admit(), pytest.raises(SessionLimitError), sessions.admit():
        pass
    points = metered.read()
    refused = {p.attributes["reason"]: p.value for p in points["earvoice.sessions.refused"]}
    assert (refused["SESSION_LIMIT"], refused["MODEL_MISMATCH"]) == (3, 1)


def test_a_counter_counts_by_its_attribute():
    """Drafts' tokens, for one."""
    metered = Metered("policy")
    for outcome, count in (("accepted", 3), ("rejected", 2), ("accepted", 1)):
        metered.meters.count("earvoice.draft.tokens", count, outcome)
    counts = {p.attributes["outcome"]: p.value for p in metered.read()["earvoice.draft.tokens"]}
    assert counts == {"accepted": 4, "rejected": 2}
