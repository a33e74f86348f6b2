"""Sessions, joined from the traces of their segments: segments, words, utterances."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from earvoice.latency.span import PREFIX, SEGMENT, Span, SpanError, TraceStore
from earvoice.latency.stage import (
    AUDIO_WAIT,
    HOLD,
    LATENESS,
    StageTimes,
    said_stages,
    spanned_stages,
)
from earvoice.runtime.lag import word_lag_ms

ReleasedItem = tuple[float, float, float, bool, float, int]
"""A word, or a later piece of the word before: the audio received when it was released, the time
of its release, the end of the audio that it attends to, whether it starts a word, the time from its
last token's commit to its release (all ms), and the segment of that commit, in its utterance."""


@dataclass(frozen=True)
class TracedSegment:
    """A segment, read from its trace.

    Attributes:
        segment: its number within the utterance, from 1.
        lateness_ms: how late its audio arrived.
        merged: grid segments merged into it beyond the first.
        duration_ms: arrival of its last sample to the end of all work on it.
        utterance_start_ms: audio position.
        utterance_end_ms: audio position; None unless it is its utterance's last segment.
        stages: where the time went until its commit, or until its end if it committed nothing.
    """

    trace_id: str
    utterance: int
    segment: int
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
        return self.utterance, self.segment


def segment_of_trace(root: Span, spans: Sequence[Span], clock: str) -> TracedSegment:
    """Return the segment of a span ``segment`` and all spans of its trace, in any order.

    Args:
        clock: of its session.
    """
    emits = [span for span in spans if span.name == "emit"]
    decodes = [span for span in spans if span.name == "decode"]
    ends = PREFIX + "utterance.end_ms" in root.attributes
    return TracedSegment(
        trace_id=root.trace_id,
        utterance=int(root.number("utterance.index")),
        segment=int(root.number("segment.index")),
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
        return list(columns)
    except ValueError as error:
        raise SpanError(f"span emit of trace {emit.trace_id}", "lists differ in length") from error


# Written without spaces: each item counts as a word.
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
        for (
            delay_ms,
            elapsed_ms,
            source_end_ms,
            starts_word,
            hold_ms,
            commit_segment,
        ) in segment.items:
            end_ms = source_end_ms
            if word is not None and (starts_word or unspaced):
                yield word
            elif word is not None:
                end_ms = max(end_ms, word.source_end_ms)
            # A held word spent its time in the segment that committed it.
            committed = by_place.get((segment.utterance, commit_segment), segment)
            later_ms = {
                LATENESS.name: committed.lateness_ms,
                **committed.stages,
                HOLD.name: hold_ms,
            }
            # The rest: the audio had to arrive, and the policy chose to wait for it.
            wait_ms = word_lag_ms(elapsed_ms, end_ms) - sum(later_ms.values())
            stages = {AUDIO_WAIT.name: wait_ms, **later_ms}
            word = TracedWord(*segment.place, delay_ms, elapsed_ms, end_ms, stages)
    if word is not None:
        yield word


@dataclass(frozen=True)
class TracedSession:
    """What a session's own span says, its segments in order, and their words.

    Attributes:
        clock: of ``elapsed_ms``: ``live`` or ``true``.
        status: how it ended; ``running`` until its span is there.
        trace_id: of its own span.
    """

    id: str
    segments: Sequence[TracedSegment]
    words: Sequence[TracedWord]
    audio_ms: float
    model: str = ""
    policy: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    target: str = ""
    segment_ms: float | None = None
    clock: str = "live"
    status: str = "running"
    trace_id: str = ""

    @property
    def computation_ms(self) -> float:
        return sum(segment.computation_ms for segment in self.segments)

    def utterances(self) -> list[tuple[float, float, Sequence[TracedWord]]]:
        """Return start and end (ms of the session) and words of each utterance that has ended."""
        words = {
            number: list(group) for number, group in groupby(self.words, lambda w: w.utterance)
        }
        return [
            (
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
    facts: dict[str, dict[str, Any]] = {}
    segments: dict[str, list[TracedSegment]] = {}
    for span in store.sessions():
        try:
            facts[span.text("session.id")] = _facts(span)
        except (SpanError, ValueError) as error:
            problems.append(str(error))
    for spans in store.segments():
        try:
            root = next(span for span in spans if span.name == SEGMENT)
            if PREFIX + "segment.computation_ms" not in root.attributes:
                continue  # its session ended before it did
            name = root.text("session.id")
            clock = facts.get(name, {}).get("clock", TracedSession.clock)
            segments.setdefault(name, []).append(segment_of_trace(root, spans, clock))
        except SpanError as error:
            problems.append(str(error))
    names = dict.fromkeys([*segments, *facts])
    return [_session(name, facts.get(name, {}), segments.get(name, [])) for name in names], problems


def _session(
    name: str, facts: Mapping[str, Any], segments: Sequence[TracedSegment]
) -> TracedSession:
    in_order = sorted(segments, key=lambda segment: segment.place)
    heard_ms = max((segment.end_ms for segment in in_order), default=0.0)
    words = list(words_of_segments(in_order, facts.get("target", "")))
    return TracedSession(name, in_order, words, **{"audio_ms": heard_ms, **facts})


def _facts(span: Span) -> dict[str, Any]:
    """Return fields of a `TracedSession` from its own span."""
    return {
        "model": span.text("model.name", ""),
        "policy": span.text("policy.name", ""),
        "parameters": json.loads(span.text("policy.parameters", "{}")),
        "source": span.text("language.source", ""),
        "target": span.text("language.target", ""),
        "segment_ms": span.number("segment.duration_ms", 0) or None,
        "clock": span.text("session.clock"),
        "status": span.text("session.status", "ok"),
        "audio_ms": span.number("session.audio_ms"),
        "trace_id": span.trace_id,
    }
