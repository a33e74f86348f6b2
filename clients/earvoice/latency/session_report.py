"""The numbers of one session: lag on each clock, stages, and what made the slowest words slow.

They are plain values, as in the page and ``--format json``; docs/latency.md explains them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from earvoice.latency.span import TraceStore
from earvoice.latency.stage import WORD_STAGES
from earvoice.latency.traced_session import (
    TracedSegment,
    TracedSession,
    TracedWord,
    join_traces,
)
from earvoice.runtime.lag import laal_star_ms, word_lag_ms

Record = dict[str, Any]
Spread = dict[str, float]
"""Mean, percentiles and maximum of some values, in their unit."""


def report_session(session: TracedSession) -> Record:
    """Return the report of a session.

    ``word_lag_ms`` and ``laal_star_ms`` are by clock: ``ideal``; the session's own; and ``true``
    if it can be computed for a live one. LAAL* is the mean over utterances; None if no utterance
    with words has ended.
    """
    clocks: dict[str, Callable[[TracedWord], float]] = {
        "ideal": lambda word: word.delay_ms,
        session.clock: lambda word: word.elapsed_ms,
    }
    replayed_ms = true_times_ms(session.segments)
    if replayed_ms is not None and "true" not in clocks:
        clocks["true"] = lambda word: replayed_ms[word.utterance, word.segment]
    utterances = session.utterances()
    return {
        "id": session.id,
        "trace_id": session.trace_id,
        "model": session.model,
        "policy": {"name": session.policy, "parameters": session.parameters},
        "languages": {"source": session.source, "target": session.target},
        "segment_ms": session.segment_ms,
        "clock": session.clock,
        "status": session.status,
        "audio_ms": session.audio_ms,
        "computation_ms": session.computation_ms,
        "real_time_factor": session.computation_ms / session.audio_ms if session.audio_ms else None,
        "word_lag_ms": {
            name: spread_of(
                [word_lag_ms(time_of(word), word.source_end_ms) for word in session.words]
            )
            for name, time_of in clocks.items()
        },
        "laal_star_ms": {name: _laal_star(utterances, time_of) for name, time_of in clocks.items()},
        "segment_computation_ms": spread_of(
            [segment.computation_ms for segment in session.segments]
        ),
        "stages": _stages(session.words),
        "slowest": slowest_words(session.words),
        "utterances": [
            {"start_ms": start_ms, "end_ms": end_ms, "words": len(words)}
            for start_ms, end_ms, words in utterances
        ],
        "segments": [_segment(segment) for segment in session.segments],
        "words": [asdict(word) for word in session.words],
    }


def _segment(segment: TracedSegment) -> Record:
    told = asdict(segment)
    del told["utterance_start_ms"], told["utterance_end_ms"]
    return {**told, "items": len(segment.items)}


def _laal_star(
    utterances: Sequence[tuple[float, float, Sequence[TracedWord]]],
    time_of: Callable[[TracedWord], float],
) -> float | None:
    values = [
        laal_star_ms([time_of(word) - start_ms for word in words], end_ms - start_ms)
        for start_ms, end_ms, words in utterances
        if words and end_ms > start_ms
    ]
    return fmean(values) if values else None


def _stages(words: Sequence[TracedWord]) -> list[Record]:
    """Return each stage's spread over the words, and its share of all words' lag, 0 to 1.

    A share is below 0 where a word left before its source ended.
    """
    total_ms = sum(word.lag_ms for word in words)
    stages = []
    for stage in WORD_STAGES if words else ():
        times_ms = [word.stages[stage.name] for word in words]
        share = sum(times_ms) / total_ms if total_ms else 0.0
        named = {"name": stage.name, "label": stage.label, "share": share}
        stages.append({**named, **(spread_of(times_ms) or {})})
    return stages


def slowest_words(words: Sequence[TracedWord], count: int = 10) -> list[Record]:
    """Return the words with the largest lag, the slowest first, and what made each slow.

    The largest stage would nearly always be the policy's wait for audio. The cause is therefore the
    stage furthest above its median in the session, ``usual_ms``.
    """
    usual_ms = {
        stage.name: median(word.stages[stage.name] for word in words)
        for stage in WORD_STAGES
        if words
    }
    numbered = sorted(enumerate(words, start=1), key=lambda pair: -pair[1].lag_ms)
    return [_slow_word(number, word, usual_ms) for number, word in numbered[:count]]


def _slow_word(number: int, word: TracedWord, usual_ms: Mapping[str, float]) -> Record:
    cause = max(WORD_STAGES, key=lambda stage: word.stages[stage.name] - usual_ms[stage.name])
    return {
        "word": number,
        **asdict(word),
        "lag_ms": word.lag_ms,
        "cause": {
            "stage": cause.name,
            "label": cause.label,
            "text": cause.blame,
            "ms": word.stages[cause.name],
            "usual_ms": usual_ms[cause.name],
        },
    }


def percentile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread_of(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    ordered = sorted(values)
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    percentiles = {name: percentile(ordered, share) for name, share in shares.items()}
    return {"mean": fmean(values), **percentiles, "max": ordered[-1]}


Place = tuple[int, int]


def true_times_ms(segments: Sequence[TracedSegment]) -> Mapping[Place, float] | None:
    """Return when each segment's words would have left if only computation took time.

    A segment starts when its audio exists and the one before is finished: docs/latency.md.

    Args:
        segments: of one session, in order.

    Returns:
        by the segment's place; None if segments were merged or are missing: a faster machine
        would have decided other segments.
    """
    if not _is_complete(segments):
        return None
    times_ms: dict[Place, float] = {}
    received_ms, finished_ms = 0.0, 0.0
    for segment in segments:
        received_ms = max(received_ms, segment.end_ms)
        start_ms = max(received_ms, finished_ms)
        stages = segment.stages
        deciding_ms = stages["encoder_compute"] + stages["decoder_compute"]
        times_ms[segment.place] = start_ms + deciding_ms
        finished_ms = start_ms + segment.computation_ms
    return times_ms


def _is_complete(segments: Sequence[TracedSegment]) -> bool:
    follows = all(
        after.place in ((before.utterance, before.segment + 1), (before.utterance + 1, 1))
        for before, after in pairwise(segments)
    )
    begins = bool(segments) and segments[0].place == (0, 1)
    return begins and follows and not any(segment.merged for segment in segments)


def report_store(store: TraceStore) -> tuple[Sequence[Record], Sequence[str]]:
    """Return a report of each session, and a sentence for each trace that was left out."""
    sessions, problems = join_traces(store)
    if store.dropped_traces:
        problems.append(f"{store.dropped_traces} old traces, to make room for new ones")
    return [report_session(session) for session in sessions], problems
