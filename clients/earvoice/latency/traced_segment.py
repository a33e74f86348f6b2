"""One segment, as its trace tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from earvoice.latency.errors import SpanError
from earvoice.latency.measured_stage import said_stages, spanned_stages
from earvoice.latency.span import PREFIX, Span
from earvoice.latency.stage import StageTimes


@dataclass(frozen=True)
class ReleasedItem:
    """A word, or a later piece of the word before; positions and times of the session.

    Attributes:
        delay_ms: audio received when it was released.
        elapsed_ms: time of its release, on the session's clock.
        source_end_ms: where the audio that it attends to ends.
        starts_word: whether it begins a word.
        hold_ms: from its last token's commit to its release.
        commit_segment: segment of that commit, in the same utterance.
    """

    delay_ms: float
    elapsed_ms: float
    source_end_ms: float
    starts_word: bool
    hold_ms: float
    commit_segment: int


@dataclass(frozen=True)
class TracedSegment:
    """A segment.

    Attributes:
        session_id: whose it is.
        trace_id: to look it up in a trace store.
        utterance: from 0.
        index: within the utterance, from 1.
        end_ms: audio position of its end.
        lateness_ms: how late its audio arrived.
        merged: grid segments merged into it beyond the first.
        computation_ms: of all services.
        duration_ms: arrival of its last sample to the end of all work on it.
        utterance_start_ms: audio position.
        utterance_end_ms: audio position; None unless it is its utterance's last.
        stages: where the time went until its commit, or until its end if it committed nothing.
        items: what it released.
        tokens_proposed: tokens that the decoder proposed.
        tokens_committed: of those, how many were committed.
        failed: one of its spans is an error.
    """

    session_id: str
    trace_id: str
    utterance: int
    index: int
    end_ms: float
    lateness_ms: float
    merged: int
    computation_ms: float
    duration_ms: float
    utterance_start_ms: float
    utterance_end_ms: float | None
    stages: StageTimes
    items: tuple[ReleasedItem, ...]
    tokens_proposed: int
    tokens_committed: int
    failed: bool

    @property
    def place(self) -> tuple[int, int]:
        """Its place in the session."""
        return self.utterance, self.index


def session_of_trace(spans: Sequence[Span]) -> str:
    """Return the id of the session whose segment's spans these are.

    Raises:
        SpanError: there is no segment, or it has no session.
    """
    return _root(spans).text("session.id")


def segment_of_trace(spans: Sequence[Span], clock: str) -> TracedSegment:
    """Return the segment whose spans these are, in any order.

    Args:
        spans: of one trace.
        clock: the session's.

    Raises:
        SpanError: a span lacks an attribute, or there is no segment.
    """
    root = _root(spans)
    emits = [span for span in spans if span.name == "emit"]
    decodes = [span for span in spans if span.name == "decode"]
    ends = PREFIX + "utterance.end_ms" in root.attributes
    return TracedSegment(
        session_id=root.text("session.id"),
        trace_id=root.trace_id,
        utterance=int(root.number("utterance.index")),
        index=int(root.number("segment.index")),
        end_ms=root.number("segment.end_ms"),
        lateness_ms=root.number("segment.arrival_lateness_ms", 0),
        merged=int(root.number("segment.merged", 0)),
        computation_ms=root.number("segment.computation_ms"),
        duration_ms=root.duration_ms,
        utterance_start_ms=root.number("utterance.start_ms"),
        utterance_end_ms=root.number("utterance.end_ms") if ends else None,
        stages=said_stages(emits[0]) if emits else spanned_stages(root, spans, clock),
        items=tuple(item for emit in emits for item in _items(emit)),
        tokens_proposed=int(sum(span.number("tokens.proposed", 0) for span in decodes)),
        tokens_committed=int(sum(span.number("tokens.committed", 0) for span in decodes)),
        failed=any(span.failed for span in spans),
    )


def _root(spans: Sequence[Span]) -> Span:
    for span in spans:
        if span.name == "segment":
            return span
    raise SpanError(f"trace {spans[0].trace_id}", "has no span segment")


def _items(emit: Span) -> list[ReleasedItem]:
    columns = zip(
        emit.numbers("words.delay_ms"),
        emit.numbers("words.elapsed_ms"),
        emit.numbers("words.source_end_ms"),
        emit.flags("words.starts_word"),
        emit.numbers("words.hold_ms"),
        map(int, emit.numbers("words.commit_segment")),
        strict=True,
    )
    try:
        return [ReleasedItem(*row) for row in columns]
    except ValueError as error:
        raise SpanError(f"span emit of trace {emit.trace_id}", "lists differ in length") from error
