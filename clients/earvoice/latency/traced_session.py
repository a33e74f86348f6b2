"""One session, joined from the traces of its segments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from earvoice.latency.errors import SpanError
from earvoice.latency.span import Span
from earvoice.latency.trace_store import TraceStore
from earvoice.latency.traced_segment import TracedSegment, segment_of_trace, session_of_trace
from earvoice.latency.traced_word import TracedWord, words_of_segments


@dataclass(frozen=True)
class Utterance:
    """The words of an utterance that has ended; positions of the session, in ms."""

    start_ms: float
    end_ms: float
    words: Sequence[TracedWord]


@dataclass(frozen=True)
class SessionFacts:
    """What a session's own span says.

    Attributes:
        session_id: empty for none.
        model: its name.
        policy: its name.
        parameters: of the policy.
        source: language of the speech.
        target: language of the words.
        segment_ms: length of a segment; None if unknown.
        clock: of ``elapsed_ms``: ``live`` or ``true``.
        status: how it ended; ``running`` while its span is not there.
        audio_ms: audio received; None if unknown.
        trace_id: of its span; empty if unknown.
    """

    session_id: str
    model: str = ""
    policy: str = ""
    parameters: Mapping[str, Any] | None = None
    source: str = ""
    target: str = ""
    segment_ms: float | None = None
    clock: str = "live"
    status: str = "running"
    audio_ms: float | None = None
    trace_id: str = ""


@dataclass(frozen=True)
class TracedSession:
    """A session with its segments in order, and their words."""

    facts: SessionFacts
    segments: Sequence[TracedSegment]
    words: Sequence[TracedWord]

    @property
    def audio_ms(self) -> float:
        """Audio received, as far as is known."""
        if self.facts.audio_ms is not None:
            return self.facts.audio_ms
        return max((segment.end_ms for segment in self.segments), default=0.0)

    @property
    def computation_ms(self) -> float:
        """Computation of all services."""
        return sum(segment.computation_ms for segment in self.segments)

    def utterances(self) -> list[Utterance]:
        """Return the utterances that have ended."""
        words = {
            number: list(group) for number, group in groupby(self.words, lambda w: w.utterance)
        }
        return [
            Utterance(
                segment.utterance_start_ms,
                segment.utterance_end_ms,
                words.get(segment.utterance, []),
            )
            for segment in self.segments
            if segment.utterance_end_ms is not None
        ]


@dataclass(frozen=True)
class JoinedTraces:
    """All sessions, and what could not be joined.

    Attributes:
        sessions: in the order in which their spans came.
        problems: a sentence for each trace that was left out.
    """

    sessions: Sequence[TracedSession]
    problems: Sequence[str]


def join_traces(store: TraceStore) -> JoinedTraces:
    """Join spans into sessions, by their attributes alone."""
    problems: list[str] = []
    facts: dict[str, SessionFacts] = {}
    segments: dict[str, list[TracedSegment]] = {}
    for span in store.sessions():
        try:
            found = _facts(span)
            facts[found.session_id] = found
        except (SpanError, ValueError) as error:
            problems.append(str(error))
    for spans in store.segments():
        try:
            name = session_of_trace(spans)
            clock = facts.get(name, SessionFacts(name)).clock
            segments.setdefault(name, []).append(segment_of_trace(spans, clock))
        except SpanError as error:
            problems.append(str(error))
    names = [*segments, *(name for name in facts if name not in segments)]
    sessions = [
        _session(facts.get(name, SessionFacts(name)), segments.get(name, [])) for name in names
    ]
    return JoinedTraces(sessions, problems)


def _session(facts: SessionFacts, segments: list[TracedSegment]) -> TracedSession:
    segments.sort(key=lambda segment: segment.place)
    return TracedSession(facts, segments, list(words_of_segments(segments, facts.target)))


def _facts(span: Span) -> SessionFacts:
    return SessionFacts(
        session_id=span.text("session.id"),
        model=span.text("model.name", ""),
        policy=span.text("policy.name", ""),
        parameters=json.loads(span.text("policy.parameters", "{}")),
        source=span.text("language.source", ""),
        target=span.text("language.target", ""),
        segment_ms=span.number("segment.duration_ms", 0) or None,
        clock=span.text("session.clock"),
        status=span.text("session.status", "ok"),
        audio_ms=span.number("session.audio_ms"),
        trace_id=span.trace_id,
    )
