"""The numbers of one session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from earvoice.latency.percentile import Spread, spread_of
from earvoice.latency.slow_word import SlowWord, slowest_words
from earvoice.latency.stage import WORD_STAGES, Stage
from earvoice.latency.traced_session import TracedSession, Utterance
from earvoice.latency.traced_word import TracedWord
from earvoice.latency.true_clock import true_times_ms
from earvoice.policy.lag import laal_star_ms, word_lag_ms


@dataclass(frozen=True)
class StageReport:
    """A stage over the words of a session.

    Attributes:
        stage: it.
        spread: of its time, in ms.
        share: of all words' lag, 0 to 1; below 0 where a word left before its source ended.
    """

    stage: Stage
    spread: Spread
    share: float


@dataclass(frozen=True)
class ClockReport:
    """How late the words of a session were on one clock.

    Attributes:
        lag: word lag in ms; None without words.
        laal_star_ms: LAAL*, the mean over its utterances; None if none with words has ended.
    """

    lag: Spread | None
    laal_star_ms: float | None


@dataclass(frozen=True)
class SessionReport:
    """What is told of a session.

    Attributes:
        session: it.
        clocks: ``ideal``; the session's own; and ``true`` where it can be told of a live one.
        computation: of a segment, in ms; None without segments.
        real_time_factor: computation / audio; None without audio.
        stages: those of words; empty without words.
        slowest: the ten slowest words.
    """

    session: TracedSession
    clocks: Mapping[str, ClockReport]
    computation: Spread | None
    real_time_factor: float | None
    stages: Sequence[StageReport]
    slowest: Sequence[SlowWord]

    @property
    def own_clock(self) -> ClockReport:
        """The session's own."""
        return self.clocks[self.session.facts.clock]


def report_session(session: TracedSession) -> SessionReport:
    """Compute the numbers of a session."""
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
