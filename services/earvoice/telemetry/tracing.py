"""Spans of one process: made when they are over, queued, and exported or written to a file."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from earvoice.telemetry.service_telemetry import CLOSE_TIMEOUT_S, ExportLosses

Attributes = Mapping[str, str | bool | int | float | Sequence[str] | Sequence[float]]

_SCOPE = InstrumentationScope("earvoice")
_UNSET = Status(StatusCode.UNSET)
_ERROR = Status(StatusCode.ERROR)


class SpanBatch:
    """Spans that end together, placed in wall time by one reading of both clocks at the start.

    So durations are exact, whatever happens to the wall clock meanwhile. The spans are built as the
    SDK's own records, not by its tracer: that costs fifteen times as much, because it has to
    support spans that are still open.

    Args:
        monotonic_ns: the clock on which the spans' moments are given, in seconds.
    """

    def __init__(
        self,
        resource: Resource,
        monotonic_ns: Callable[[], int] = time.perf_counter_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._resource = resource
        self._offset_ns = wall_ns() - monotonic_ns()
        self.spans: list[ReadableSpan] = []

    def add(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        interval_s: tuple[float, float],
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
        failed: bool = False,
    ) -> None:
        """Add a span of the schema.

        Args:
            interval_s: from one moment to another, on the monotonic clock.
            kind: CLIENT for a call to another service, SERVER for its work on it.
            links: spans of other traces that it belongs to.
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
                start_time=self._offset_ns + round(interval_s[0] * 1e9),
                end_time=self._offset_ns + round(interval_s[1] * 1e9),
                instrumentation_scope=_SCOPE,
            )
        )


QUEUE_SPANS = 8192
BATCH_SPANS = 512
INTERVAL_S = 5.0
"""As the SDK's own processor. A thread that wakes more often costs more than the spans do."""


class Tracer:
    """A process's spans: a bounded queue, and the thread that exports it.

    The SDK's own batch processor drops the oldest span when full and counts nothing. The exporter
    may block or fail as it likes; spans of failed exports, and those that come when the queue is
    full, are counted as losses.
    """

    def __init__(
        self,
        resource: Resource,
        exporter: SpanExporter,
        losses: ExportLosses,
        capacity_spans: int = QUEUE_SPANS,
    ) -> None:
        self._resource = resource
        self._exporter = exporter
        self._losses = losses
        self._capacity_spans = capacity_spans
        self._spans: deque[ReadableSpan] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="span-export", daemon=True)
        self._thread.start()

    def batch(self, monotonic_ns: Callable[[], int] = time.perf_counter_ns) -> SpanBatch:
        return SpanBatch(self._resource, monotonic_ns)

    def put(self, spans: Sequence[ReadableSpan]) -> None:
        """Take spans for export; what does not fit is lost. Never blocks; one thread calls it."""
        room = max(0, self._capacity_spans - len(self._spans))
        self._spans.extend(spans[:room])
        if len(spans) > room:
            self._losses.lose("traces", len(spans) - room, "the queue is full")
        if len(self._spans) >= BATCH_SPANS:
            self._wake.set()

    def close(self) -> None:
        """Export waiting spans, for two seconds at most."""
        self._closing = True
        self._wake.set()
        self._thread.join(CLOSE_TIMEOUT_S)
        self._exporter.shutdown()
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._spans:
            self._losses.lose("traces", len(self._spans), "the service stops")

    def _work(self) -> None:
        # Of nothing: a wrong address is told now, not once a session's spans are lost.
        self._export([])
        while not self._closing:
            self._wake.wait(INTERVAL_S)
            self._wake.clear()
            self._export_waiting()
        self._export_waiting()

    def _export_waiting(self) -> None:
        while self._spans:
            count = min(BATCH_SPANS, len(self._spans))
            self._export([self._spans.popleft() for _ in range(count)])

    def _export(self, batch: list[ReadableSpan]) -> None:
        try:
            result = self._exporter.export(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, no session may notice
            self._losses.lose("traces", len(batch), f"{type(error).__name__}: {error}")
            return
        if result is SpanExportResult.SUCCESS:
            self._losses.recover("traces")
        else:
            self._losses.refuse("traces", len(batch))


MAX_FILE_BYTES = 64 * 1024 * 1024

Json = Mapping[str, object]

_VALUE_NAMES = {bool: "boolValue", float: "doubleValue", str: "stringValue"}


class SpanFileExporter(SpanExporter):
    """Appends one OTLP/JSON object a batch, as the collector's file exporter does.

    OpenTelemetry's own exporter (`opentelemetry-exporter-otlp-json-file`) lets the file grow
    without end, and leaves half a line where the disk is full: what follows cannot be read then.

    Args:
        path: written; its folder is made if need be.
        max_bytes: past this size the file becomes `path.1`, in place of an older one.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _opened(path)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write the spans; they are in the file when this returns."""
        if spans:
            if self._size_bytes() > self._max_bytes:
                self._rotate()
            line = json.dumps(_request(spans), separators=(",", ":")) + "\n"
            self._append(line.encode())
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self._file.close()

    def _append(self, line: bytes) -> None:
        """Write a whole line or nothing, so that what is written later can still be read."""
        before_bytes = self._size_bytes()
        if self._file.write(line) != len(line):
            self._file.truncate(before_bytes)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def _size_bytes(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _rotate(self) -> None:
        # What fails here is done again at the next export: until then the old file stays open.
        with suppress(FileNotFoundError):
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        full, self._file = self._file, _opened(self._path)
        full.close()


def _opened(path: Path) -> FileIO:
    # Unbuffered: what a full disk did not take is not left to be written on closing.
    return FileIO(path, "a")


def _request(spans: Sequence[ReadableSpan]) -> Json:
    """The spans of one process have one resource and one scope."""
    scope = spans[0].instrumentation_scope
    resource = {"attributes": _attributes(spans[0].resource.attributes)}
    scope_spans = {
        "scope": {"name": scope.name if scope else ""},
        "spans": [_span(span) for span in spans],
    }
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope_spans]}]}


def _span(span: ReadableSpan) -> Json:
    fields: dict[str, object] = {
        **_ids(span.get_span_context()),
        "name": span.name,
        # OTLP counts from 1, the SDK from 0.
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _attributes(span.attributes or {}),
        "links": [_ids(link.context) for link in span.links],
        "status": {"code": span.status.status_code.value},
    }
    if span.parent is not None:
        fields["parentSpanId"] = f"{span.parent.span_id:016x}"
    return fields


def _ids(context: SpanContext | None) -> dict[str, object]:
    if context is None:
        return {}
    return {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "flags": int(context.trace_flags),
    }


def _attributes(attributes: Mapping[str, object]) -> list[Json]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: object) -> Json:
    name = _VALUE_NAMES.get(type(value))
    if name is not None:
        return {name: value}
    if isinstance(value, int):
        # 64 bits do not fit into a JavaScript number.
        return {"intValue": str(value)}
    if isinstance(value, Iterable):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    raise TypeError(f"{value!r} cannot be an attribute of a span")
