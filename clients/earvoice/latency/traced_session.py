"""Sessions, joined from the traces of their segments: segments, words, utterances."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from earvoice.latency.span import PREFIX, Span, SpanError, TraceStore
from earvoice.latency.stage import (
    AUDIO_WAIT,
    HOLD,
    LATENESS,
    StageTimes,
    said_stages,
    spanned_stages,
)
from earvoice.runtime.lag import word_lag_ms


@dataclass(frozen=True)
class ReleasedItem:
    """A word, or a later piece of the word before; positions and times of the session.

    Attributes:
        delay_ms: audio received when it was released.
        source_end_ms: where the audio that it attends to ends.
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
    """A segment, as its trace tells it.

    Attributes:
        index: within the utterance, from 1.
        lateness_ms: how late its audio arrived.
        merged: grid segments merged into it beyond the first.
        duration_ms: arrival of its last sample to the end of all work on it.
        utterance_start_ms: audio position.
        utterance_end_ms: audio position; None unless it is its utterance's last.
        stages: where the time went until its commit, or until its end if it committed nothing.
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
        return self.utterance, self.index


def segment_of_trace(spans: Sequence[Span], clock: str) -> TracedSegment:
    """Return the segment of one trace's spans, in any order, of a session on this clock."""
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


# Written without blanks: there each item counts by itself.
_UNSPACED_LANGUAGES = ("zh", "ja")


@dataclass(frozen=True)
class TracedWord:
    """A released word.

    ``segment`` released its last piece, and its stages, all of ``WORD_STAGES``, add up to
    ``lag_ms``.
    """

    utterance: int
    segment: int
    delay_ms: float
    elapsed_ms: float
    source_end_ms: float
    stages: StageTimes

    @property
    def lag_ms(self) -> float:
        return word_lag_ms(self.elapsed_ms, self.source_end_ms)


def words_of_segments(
    segments: Sequence[TracedSegment], target_language: str
) -> Iterator[TracedWord]:
    """Yield the words of a session's segments, given in order.

    A word that came in pieces is released with its last one.
    """
    unspaced = target_language.replace("_", "-").split("-")[0].lower() in _UNSPACED_LANGUAGES
    by_place = {segment.place: segment for segment in segments}
    word: TracedWord | None = None
    for segment in segments:
        for item in segment.items:
            end_ms = item.source_end_ms
            if word is not None and (item.starts_word or unspaced):
                yield word
            elif word is not None:
                end_ms = max(end_ms, word.source_end_ms)
            # A held word's time went by in the segment that committed it.
            committed = by_place.get((segment.utterance, item.commit_segment), segment)
            word = _word(segment, item, committed, end_ms)
    if word is not None:
        yield word


def _word(
    segment: TracedSegment, item: ReleasedItem, committed: TracedSegment, source_end_ms: float
) -> TracedWord:
    after_end_ms = {
        LATENESS.name: committed.lateness_ms,
        **committed.stages,
        HOLD.name: item.hold_ms,
    }
    # What is left: the audio had to come, and the policy chose to wait for it.
    lag_ms = word_lag_ms(item.elapsed_ms, source_end_ms)
    audio_wait_ms = lag_ms - sum(after_end_ms.values())
    return TracedWord(
        segment.utterance,
        segment.index,
        item.delay_ms,
        item.elapsed_ms,
        source_end_ms,
        {AUDIO_WAIT.name: audio_wait_ms, **after_end_ms},
    )


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
        clock: of ``elapsed_ms``: ``live`` or ``true``.
        status: how it ended; ``running`` while its span is not there.
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
        if self.facts.audio_ms is not None:
            return self.facts.audio_ms
        return max((segment.end_ms for segment in self.segments), default=0.0)

    @property
    def computation_ms(self) -> float:
        return sum(segment.computation_ms for segment in self.segments)

    def utterances(self) -> list[Utterance]:
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


def join_traces(store: TraceStore) -> tuple[list[TracedSession], list[str]]:
    """Join spans into sessions, by their attributes alone.

    Returns:
        the sessions, in the order in which their spans came, and a sentence for each trace that
        was left out.
    """
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
            name = _root(spans).text("session.id")
            clock = facts.get(name, SessionFacts(name)).clock
            segments.setdefault(name, []).append(segment_of_trace(spans, clock))
        except SpanError as error:
            problems.append(str(error))
    names = [*segments, *(name for name in facts if name not in segments)]
    sessions = [
        _session(facts.get(name, SessionFacts(name)), segments.get(name, [])) for name in names
    ]
    return sessions, problems


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
