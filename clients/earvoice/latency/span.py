"""Finished spans, from OTLP/JSON lines or other messages, kept by trace.

OTLP/JSON is not protobuf's JSON: ids are hex here, and base64 there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class SpanError(Exception):
    """A span, or a line that should hold spans, is not what the telemetry page describes.

    `where` is the file and line, or the span; `problem` has the value and what is allowed.
    """

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")


AttributeValue = str | bool | int | float | tuple["AttributeValue", ...]

PREFIX = "earvoice."
NS_PER_MS = 1e6
_ERROR_STATUS = (2, "STATUS_CODE_ERROR")


@dataclass(frozen=True, slots=True)
class Span:
    """A span.

    Attributes:
        start_ns: on the clock of the process that made it, to be compared with nothing but other
            spans of that process in the same trace.
    """

    name: str
    trace_id: str
    start_ns: int
    duration_ms: float
    attributes: Mapping[str, AttributeValue]
    failed: bool = False

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number of ours, named without the prefix ``earvoice.``."""
        value = self.attributes.get(PREFIX + name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, value, "a number")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.attributes.get(PREFIX + name, default)
        if not isinstance(value, str):
            raise self._wrong(name, value, "a text")
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        values = self._items(name)
        numbers = tuple(value for value in values if isinstance(value, int | float))
        if len(numbers) != len(values):
            raise self._wrong(name, values, "numbers")
        return numbers

    def flags(self, name: str) -> tuple[bool, ...]:
        return tuple(bool(value) for value in self._items(name))

    def _items(self, name: str) -> tuple[AttributeValue, ...]:
        value = self.attributes.get(PREFIX + name)
        if not isinstance(value, tuple):
            raise self._wrong(name, value, "a list")
        return value

    def _wrong(self, name: str, value: object, allowed: str) -> SpanError:
        return SpanError(
            f"span {self.name} of trace {self.trace_id}",
            f"{PREFIX}{name} = {value!r}, must be {allowed}",
        )


def read_span_file(path: Path) -> Iterator[Span]:
    """Yield the spans of a file.

    A line that a service is still writing ends without a line break; it is left for next time.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip() or not line.endswith(b"\n"):
                continue
            try:
                yield from spans_of_line(line)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                problem = f"no OTLP/JSON of spans: {type(error).__name__} {error}"
                raise SpanError(f"{path}:{number}", problem) from error


def spans_of_line(line: str | bytes) -> Iterator[Span]:
    return spans_of(json.loads(line))


def spans_of(
    content: Mapping[str, Any], read_id: Callable[[str], str] = str.lower
) -> Iterator[Span]:
    """Yield the spans of an OTLP request in JSON.

    Args:
        read_id: gives the hex of a trace's id.
    """
    for resource in content.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                yield _span(span, read_id(span["traceId"]))


def _span(span: Mapping[str, Any], trace_id: str) -> Span:
    # protobuf's JSON leaves out fields that have their default value.
    start_ns = int(span.get("startTimeUnixNano", 0))
    return Span(
        name=span.get("name", ""),
        trace_id=trace_id,
        start_ns=start_ns,
        duration_ms=(int(span.get("endTimeUnixNano", 0)) - start_ns) / NS_PER_MS,
        attributes={
            pair.get("key", ""): _value(pair.get("value", {}))
            for pair in span.get("attributes", ())
        },
        failed=span.get("status", {}).get("code") in _ERROR_STATUS,
    )


def _value(value: dict[str, Any]) -> AttributeValue:
    """Return an AnyValue; 64-bit integers are texts in OTLP/JSON."""
    kind = next(iter(value), "")
    content: Any = value.get(kind, "")
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


SESSION, SEGMENT = "session", "segment"
_OF_A_SEGMENT = frozenset(
    {
        SEGMENT,
        "encode",
        "encoder.queue",
        "encoder.compute",
        "decode",
        "decoder.queue",
        "decoder.prefill",
        "decoder.steps",
        "decide",
        "emit",
    }
)


class TraceStore:
    """Keeps the spans of the newest traces.

    Args:
        most_traces: beyond this the oldest are dropped; None keeps all.

    Attributes:
        span_count: spans of ours that were added.
    """

    def __init__(self, most_traces: int | None = None) -> None:
        self._most_traces = most_traces
        self._segments: dict[str, list[Span]] = {}
        self._sessions: dict[str, Span] = {}
        self.dropped_traces = 0
        self.span_count = 0

    def take(self, spans: Iterable[Span]) -> None:
        for span in spans:
            if span.name == SESSION:
                # One that was resumed is in the trace of the one before.
                name = span.attributes.get(f"{PREFIX}session.id", span.trace_id)
                self._sessions[str(name)] = span
            elif span.name in _OF_A_SEGMENT:
                self._segments.setdefault(span.trace_id, []).append(span)
            else:
                continue
            self.span_count += 1
        self._drop_oldest()

    def sessions(self) -> Iterator[Span]:
        """Yield the spans of sessions that have ended."""
        yield from self._sessions.values()

    def segments(self) -> Iterator[Sequence[Span]]:
        """Yield the spans of each segment that is finished."""
        for spans in self._segments.values():
            if any(span.name == SEGMENT for span in spans):
                yield spans

    def _drop_oldest(self) -> None:
        if self._most_traces is None:
            return
        for traces in (self._segments, self._sessions):
            while len(traces) > self._most_traces:
                del traces[next(iter(traces))]
                self.dropped_traces += 1
