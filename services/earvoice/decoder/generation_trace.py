"""Spans of the generations that a traced session asks for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from earvoice.decoder.event import Ended
from earvoice.telemetry.moment import Interval, WallAnchor
from earvoice.telemetry.trace_context import new_child, sampled_parent

if TYPE_CHECKING:
    from earvoice.telemetry.tracing import Tracer


class GenerationTrace:
    """Makes the spans of a generation, where its command names a trace that is kept.

    Args:
        tracer: takes them; None makes none.
    """

    def __init__(self, tracer: Tracer | None) -> None:
        self._tracer = tracer

    def note(self, event: Ended) -> None:
        """Make the spans of a generation that has ended."""
        course = event.course
        if self._tracer is None or course is None:
            return
        parent = sampled_parent(course.traceparent)
        if parent is None:
            return
        batch = self._tracer.batch(WallAnchor(time.monotonic_ns))
        queued = Interval(event.spent.read_at_s, course.prefill_s)
        batch.add("decoder.queue", new_child(parent), parent, queued, {})
        prefill = Interval(course.prefill_s, course.prefilled_s)
        batch.add("decoder.prefill", new_child(parent), parent, prefill, {})
        attributes: dict[str, str | int | float] = {
            "earvoice.tokens.proposed": event.step_count,
            "earvoice.draft.accepted": event.draft_accepted_count,
            "earvoice.batch.size": course.batch_size,
            "earvoice.engine.compute_ms": event.spent.compute_ms,
            "earvoice.engine.queue_ms": event.spent.queue_ms,
            "earvoice.generation.end": event.reason.name,
        }
        batch.add(
            "decoder.steps",
            new_child(parent),
            parent,
            Interval(course.prefilled_s, course.ended_s),
            attributes,
            failed=event.failure is not None,
        )
        self._tracer.export(batch)
