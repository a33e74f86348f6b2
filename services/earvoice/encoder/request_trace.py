"""Spans of the requests that a traced session sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from earvoice.encoder.command import Answer, Encoded
from earvoice.runtime.executor import Computation
from earvoice.telemetry.moment import Interval, WallAnchor
from earvoice.telemetry.trace_context import new_child, sampled_parent

if TYPE_CHECKING:
    from earvoice.telemetry.tracing import Tracer


class RequestTrace:
    """Makes the spans of a request, where its message names a trace that is kept.

    Args:
        tracer: takes them; None makes none.
    """

    def __init__(self, tracer: Tracer | None) -> None:
        self._tracer = tracer

    def note(self, traceparent: str, began_s: float, computed: Computation[Answer]) -> None:
        """Make the spans of a request that has been computed; only revisions have any.

        Args:
            traceparent: the caller's span, or empty.
            began_s: when the request had been read, by `time.perf_counter`.
            computed: what the engine made of it.
        """
        if self._tracer is None or not isinstance(computed.value, Encoded):
            return
        parent = sampled_parent(traceparent)
        if parent is None:
            return
        taken_s = began_s + computed.queue_ms / 1000
        done_s = taken_s + computed.compute_ms / 1000
        batch = self._tracer.batch(WallAnchor())
        batch.add("encoder.queue", new_child(parent), parent, Interval(began_s, taken_s), {})
        attributes = {
            "earvoice.batch.size": 1,
            "earvoice.engine.compute_ms": computed.compute_ms,
            "earvoice.states.revision": computed.value.revision,
        }
        compute = Interval(taken_s, done_s)
        batch.add("encoder.compute", new_child(parent), parent, compute, attributes)
        self._tracer.export(batch)
