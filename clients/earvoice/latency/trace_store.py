"""Spans by trace: what belongs to one segment, in whatever order it came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from earvoice.latency.span import Span

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
        most_traces: the oldest ones are dropped beyond it; None keeps all.

    Attributes:
        dropped_traces: how many were.
        span_count: spans of ours that were taken.
    """

    def __init__(self, most_traces: int | None = None) -> None:
        self._most_traces = most_traces
        self._segments: dict[str, list[Span]] = {}
        self._sessions: dict[str, Span] = {}
        self.dropped_traces = 0
        self.span_count = 0

    def take(self, spans: Iterable[Span]) -> None:
        """Take spans; those of other programs are left out."""
        for span in spans:
            if span.name == SESSION:
                self._sessions[span.trace_id] = span
            elif span.name in _OF_A_SEGMENT:
                self._segments.setdefault(span.trace_id, []).append(span)
            else:
                continue
            self.span_count += 1
        self._drop_oldest()

    def sessions(self) -> Iterator[Span]:
        """Yield the spans of finished sessions."""
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
