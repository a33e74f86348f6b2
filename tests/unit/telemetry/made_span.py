"""Spans for tests."""

from __future__ import annotations

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link

from earvoice.telemetry.trace_context import new_child, new_root
from earvoice.telemetry.tracing import SpanBatch

SESSION = new_root()


def made_spans(count: int = 1) -> list[ReadableSpan]:
    """Children of one root, each with an attribute of every type, and a link."""
    root = new_root()
    batch = SpanBatch(Resource({"service.name": "tested"}), lambda: 0, lambda: 10**18)
    for index in range(count):
        attributes = {
            "text": "ä",
            "flag": True,
            "count": index,
            "time_ms": 1.5,
            "times_ms": [0.5, 2.0],
            "flags": [True, False],
            "names": ["a"],
        }
        batch.add("made", new_child(root), root, (1.0, 2.5), attributes, links=[Link(SESSION)])
    return batch.spans
