"""The numbers of one session: lag on each clock, stages, and what made the slowest words slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from earvoice.latency.span import TraceStore
from earvoice.latency.stage import WORD_STAGES, Stage
from earvoice.latency.traced_session import (
    TracedSegment,
    TracedSession,
    TracedWord,
    Utterance,
    join_traces,
)
from earvoice.runtime.lag import laal_star_ms, word_lag_ms


@dataclass(frozen=True)
class StageReport:
    """A stage over the words of a session.

    `share` is of all words' lag, 0 to 1; below 0 where a word left before its source ended.
    """

    stage: Stage
    spread: Spread
    share: float


@dataclass(frozen=True)
class ClockReport:
    """How late the words of a session were on one clock.

    Attributes:
        laal_star_ms: LAAL*, the mean over its utterances; None if none with words has ended.
    """

    lag: Spread | None
    laal_star_ms: float | None


@dataclass(frozen=True)
class SessionReport:
    """What is told of a session.

    Attributes:
        clocks: ``ideal``; the session's own; and ``true`` where it can be told of a live one.
    """

    session: TracedSession
    clocks: Mapping[str, ClockReport]
    computation: Spread | None
    real_time_factor: float | None
    stages: Sequence[StageReport]
    slowest: Sequence[SlowWord]

    @property
    def own_clock(self) -> ClockReport:
        return self.clocks[self.session.facts.clock]


def report_session(session: TracedSession) -> SessionReport:
    clocks: dict[str, Callable[[TracedWord], float]] = {
        "ideal": lambda word: word.delay_ms,
        session.facts.clock: lambda word: word.elapsed_ms,
    }
    replayed_ms = true_times_ms(session.segments)
    if replayed_ms is not None and "true" not in clocks:
        clocks["true"] = lambda word: replayed_ms[word.utterance, word.segment]
    return SessionReport(
        session=session,
        clocks={name: _clock_report(session, time_of) for name, time_of in clocks.items()},
        computation=spread_of([segment.computation_ms for segment in session.segments]),
        real_time_factor=session.computation_ms / session.audio_ms if session.audio_ms else None,
        stages=_stage_reports(session.words),
        slowest=slowest_words(session.words),
    )


def _clock_report(session: TracedSession, time_of: Callable[[TracedWord], float]) -> ClockReport:
    lags_ms = [word_lag_ms(time_of(word), word.source_end_ms) for word in session.words]
    return ClockReport(spread_of(lags_ms), _laal_star(session.utterances(), time_of))


def _laal_star(
    utterances: Sequence[Utterance], time_of: Callable[[TracedWord], float]
) -> float | None:
    values = [
        laal_star_ms(
            [time_of(word) - utterance.start_ms for word in utterance.words],
            utterance.end_ms - utterance.start_ms,
        )
        for utterance in utterances
        if utterance.words and utterance.end_ms > utterance.start_ms
    ]
    return fmean(values) if values else None


def _stage_reports(words: Sequence[TracedWord]) -> list[StageReport]:
    total_ms = sum(word.lag_ms for word in words)
    reports = []
    for stage in WORD_STAGES:
        times_ms = [word.stages[stage.name] for word in words]
        spread = spread_of(times_ms)
        if spread is not None:
            share = sum(times_ms) / total_ms if total_ms else 0.0
            reports.append(StageReport(stage, spread, share))
    return reports


@dataclass(frozen=True)
class SlowWord:
    """A word, and the stage that took most above its usual time.

    Attributes:
        usual_ms: the session's median of that stage.
    """

    number: int
    word: TracedWord
    cause: Stage
    cause_ms: float
    usual_ms: float


def slowest_words(words: Sequence[TracedWord], count: int = 10) -> list[SlowWord]:
    """Return the words with the largest lag, the slowest first.

    The largest stage would nearly always be the policy's wait for audio. The cause is the stage
    that is furthest above the median that it has in the session.
    """
    usual_ms = {
        stage.name: median(word.stages[stage.name] for word in words)
        for stage in WORD_STAGES
        if words
    }
    numbered = sorted(enumerate(words, start=1), key=lambda pair: -pair[1].lag_ms)
    return [_explain(number, word, usual_ms) for number, word in numbered[:count]]


def _explain(number: int, word: TracedWord, usual_ms: Mapping[str, float]) -> SlowWord:
    cause = max(WORD_STAGES, key=lambda stage: word.stages[stage.name] - usual_ms[stage.name])
    return SlowWord(number, word, cause, word.stages[cause.name], usual_ms[cause.name])


@dataclass(frozen=True)
class Spread:
    """Mean, percentiles and maximum of some values, in their unit."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: float


def percentile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread_of(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    ordered = sorted(values)
    p50, p95, p99 = (percentile(ordered, share) for share in (0.5, 0.95, 0.99))
    return Spread(fmean(ordered), p50, p95, p99, ordered[-1])


Place = tuple[int, int]


def true_times_ms(segments: Sequence[TracedSegment]) -> Mapping[Place, float] | None:
    """Return when each segment's words would have left if only computation took time.

    A segment starts when its audio exists and the one before is finished: docs/latency.md.

    Args:
        segments: of one session, in order.

    Returns:
        by the segment's place; None where segments were merged or are missing: a faster machine
        would have decided others.
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
        after.place in ((before.utterance, before.index + 1), (before.utterance + 1, 1))
        for before, after in pairwise(segments)
    )
    begins = bool(segments) and segments[0].place == (0, 1)
    return begins and follows and not any(segment.merged for segment in segments)


def report_store(store: TraceStore) -> tuple[Sequence[SessionReport], Sequence[str]]:
    sessions, problems = join_traces(store)
    if store.dropped_traces:
        problems.append(f"{store.dropped_traces} old traces, to make room for new ones")
    return [report_session(session) for session in sessions], problems
