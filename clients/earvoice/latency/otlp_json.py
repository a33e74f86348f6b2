"""Spans from OTLP/JSON lines: one ExportTraceServiceRequest a line.

Not protobuf's JSON: ids are hex there, and base64 here would be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from earvoice.latency.errors import SpanError
from earvoice.latency.span import AttributeValue, Span

_ERROR_STATUS = (2, "STATUS_CODE_ERROR")
_NS_PER_MS = 1e6


def read_span_file(path: Path) -> Iterator[Span]:
    """Yield the spans of a file.

    A line that a service is still writing ends without a line break; it is left for next time.

    Raises:
        SpanError: a line is no OTLP/JSON; other signals' lines are no error.
        OSError: the file cannot be read.
    """
    with path.open(encoding="utf8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip() or not line.endswith("\n"):
                continue
            try:
                yield from spans_of_line(line)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                problem = f"no OTLP/JSON of spans: {type(error).__name__} {error}"
                raise SpanError(f"{path}:{number}", problem) from error


def spans_of_line(line: str) -> Iterator[Span]:
    """Yield the spans of one line."""
    for resource in json.loads(line).get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            yield from map(_span, scope.get("spans", ()))


def _span(span: dict[str, Any]) -> Span:
    start_ns = int(span["startTimeUnixNano"])
    return Span(
        name=span["name"],
        trace_id=span["traceId"].lower(),
        start_ns=start_ns,
        duration_ms=(int(span["endTimeUnixNano"]) - start_ns) / _NS_PER_MS,
        attributes={pair["key"]: _value(pair["value"]) for pair in span.get("attributes", ())},
        failed=span.get("status", {}).get("code") in _ERROR_STATUS,
    )


def _value(value: dict[str, Any]) -> AttributeValue:
    """Return an AnyValue; 64-bit integers are texts in OTLP/JSON."""
    ((kind, content),) = value.items()
    match kind:
        case "intValue":
            return int(content)
        case "doubleValue":
            return float(content)
        case "boolValue":
            return bool(content)
        case "arrayValue":
            return tuple(map(_value, content.get("values", ())))
    return str(content)
