"""Spans as OTLP/JSON lines in a local file that does not grow without end."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from io import FileIO
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext

MAX_FILE_BYTES = 64 * 1024 * 1024

Json = Mapping[str, object]

_VALUE_NAMES = {bool: "boolValue", float: "doubleValue", str: "stringValue"}


class SpanFileExporter(SpanExporter):
    """Appends one OTLP/JSON object a batch, as the collector's file exporter does.

    The JSON that protobuf makes is not OTLP's: there ids are base64, here they are hex.

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
        """Write the spans; they are in the file when this returns.

        Raises:
            OSError: the disk is full, or the folder is gone.
        """
        if spans:
            if self._size_bytes() > self._max_bytes:
                self._rotate()
            line = json.dumps(_request(spans), separators=(",", ":")) + "\n"
            self._append(line.encode())
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close the file."""
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
        self._file.close()
        self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        self._file = _opened(self._path)


def _opened(path: Path) -> FileIO:
    # Unbuffered: nothing that a full disk did not take is left to be written when it closes.
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
        # 64 bits do not fit into a number of JavaScript.
        return {"intValue": str(value)}
    if isinstance(value, Iterable):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    raise TypeError(f"{value!r} is no attribute of a span")
