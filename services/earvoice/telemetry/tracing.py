"""Spans of one process: made when they are over, when everything about them is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from earvoice.telemetry.exporting import SpanQueue
from earvoice.telemetry.moment import Interval, WallAnchor

Attributes = Mapping[str, str | bool | int | float | Sequence[str] | Sequence[float]]

_SCOPE = InstrumentationScope("earvoice")
_UNSET = Status(StatusCode.UNSET)
_ERROR = Status(StatusCode.ERROR)


class SpanBatch:
    """Spans that end together.

    Built as the SDK's own records, not by its tracer: that would cost fifteen times as much for
    what it keeps ready in case a span is still open.

    Args:
        resource: whose they are.
        anchor: places their moments on the wall.
    """

    def __init__(self, resource: Resource, anchor: WallAnchor) -> None:
        self._resource = resource
        self._anchor = anchor
        self.spans: list[ReadableSpan] = []

    def add(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        interval: Interval,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
        failed: bool = False,
    ) -> None:
        """Add a span.

        Args:
            name: one of the schema's.
            context: its own.
            parent: None for a root.
            interval: when it was.
            attributes: by their full names.
            kind: CLIENT for a call to another service, SERVER for its work on it.
            links: spans of other traces that it belongs to.
            failed: whether it ended in an error.
        """
        self.spans.append(
            ReadableSpan(
                name,
                context=context,
                parent=parent,
                resource=self._resource,
                attributes=attributes,
                links=links,
                kind=kind,
                status=_ERROR if failed else _UNSET,
                start_time=self._anchor.wall_ns(interval.start_s),
                end_time=self._anchor.wall_ns(interval.end_s),
                instrumentation_scope=_SCOPE,
            )
        )


class Tracer:
    """Takes a process's spans.

    Args:
        resource: the process.
        queue: where spans go.
    """

    def __init__(self, resource: Resource, queue: SpanQueue) -> None:
        self._resource = resource
        self._queue = queue

    def batch(self, anchor: WallAnchor) -> SpanBatch:
        """Return an empty batch."""
        return SpanBatch(self._resource, anchor)

    def export(self, batch: SpanBatch) -> None:
        """Hand the spans on; never waits."""
        self._queue.put(batch.spans)
