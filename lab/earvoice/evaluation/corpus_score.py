"""Corpus scores: each metric, on each clock that a log knows, as the mean over instances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import get_args

from earvoice.evaluation.clock import Clock
from earvoice.evaluation.instance import Instance
from earvoice.evaluation.metrics.average_lagging import (
    average_lagging,
    length_adaptive_average_lagging,
    uncut_lagging,
    yet_another_average_lagging,
)
from earvoice.evaluation.metrics.average_proportion import average_proportion
from earvoice.evaluation.metrics.differentiable_lagging import differentiable_average_lagging
from earvoice.evaluation.metrics.offset import end_offset, start_offset
from earvoice.evaluation.metrics.real_time_factor import real_time_factor
from earvoice.evaluation.metrics.simuleval_1_0 import average_lagging_1_0, average_proportion_1_0
from earvoice.evaluation.metrics.token_delay import average_token_delay, target_ends
from earvoice.evaluation.metrics.word_lag import computational_overhead, mean_word_lag
from earvoice.policy.lag import laal_star_ms

# Word lag is defined on delays and on the wall clock; ``true`` is the wall clock of a replay.
_WORD_LAG_CLOCKS: tuple[Clock, ...] = ("ideal", "true", "live")

Score = Callable[[Instance, Clock, tuple[float, ...]], float | None]


@dataclass(frozen=True)
class Mean:
    """A corpus score.

    Attributes:
        value: unweighted mean over instances, in the metric's unit; None if there are none.
        count: instances that it is the mean of.
    """

    value: float | None
    count: int


@dataclass(frozen=True)
class CorpusScore:
    """All scores of a log.

    Attributes:
        clocks: columns, ``ideal`` first.
        rows: by metric, then by clock.
        instance_count: instances in the log.
        silent_count: of them, those without output. Latency skips them.
        real_time_factor: total computation / total audio, over the instances whose computation is
            known; None if there are none.
        length_ratio: units written / units of the references, over the instances that have one;
            None if there are none.
    """

    clocks: tuple[Clock, ...]
    rows: dict[str, dict[Clock, Mean]]
    instance_count: int
    silent_count: int
    real_time_factor: float | None
    length_ratio: float | None = None


def score_corpus(instances: Sequence[Instance], *, simuleval_1_0: bool = False) -> CorpusScore:
    """Score a log.

    Args:
        instances: with or without output.
        simuleval_1_0: add what SimulEval 1.0 printed (its end of sentence is among the units).
    """
    spoken = [instance for instance in instances if instance.unit_count]
    clocks = known_clocks(spoken)
    metrics = _METRICS | _METRICS_1_0 if simuleval_1_0 else _METRICS
    rows = {
        name: {clock: _mean(spoken, clock, score) for clock in clocks}
        for name, score in metrics.items()
    }
    rows["LAAL*"] = {clock: _mean(_utterances(spoken), clock, _laal_star) for clock in clocks}
    timed = [instance for instance in instances if instance.computation_ms is not None]
    return CorpusScore(
        clocks=clocks,
        rows=rows,
        instance_count=len(instances),
        silent_count=len(instances) - len(spoken),
        real_time_factor=real_time_factor(
            [instance.computation_ms or 0.0 for instance in timed],
            [instance.source_length_ms for instance in timed],
        )
        if timed
        else None,
        length_ratio=_length_ratio(instances),
    )


def _length_ratio(instances: Sequence[Instance]) -> float | None:
    written, wanted = 0, 0
    for instance in instances:
        if instance.reference_units is not None:
            written += instance.unit_count
            wanted += instance.reference_units
    return written / wanted if wanted else None


def known_clocks(spoken: Sequence[Instance]) -> tuple[Clock, ...]:
    """Return the clocks on which every instance with output has times."""
    return tuple(
        clock
        for clock in get_args(Clock)
        if all(instance.times_ms(clock) is not None for instance in spoken)
        and (spoken or clock == "ideal")
    )


def metric_names() -> tuple[str, ...]:
    """Return the metrics that ``score_instance`` knows."""
    return tuple(_METRICS)


def score_instance(instance: Instance, metric: str, clock: Clock) -> float | None:
    """Return one instance's score; None if it has no output or no times on the clock.

    Args:
        instance: what to score.
        metric: one of ``metric_names``.
        clock: on which its times are taken.
    """
    return _score(instance, clock, _METRICS[metric])


def _score(instance: Instance, clock: Clock, score: Score) -> float | None:
    times_ms = instance.times_ms(clock)
    return score(instance, clock, times_ms) if times_ms else None


def _mean(instances: Sequence[Instance], clock: Clock, score: Score) -> Mean:
    values = (_score(instance, clock, score) for instance in instances)
    scores = [value for value in values if value is not None]
    return Mean(fmean(scores) if scores else None, len(scores))


def _utterances(instances: Sequence[Instance]) -> list[Instance]:
    return [part for instance in instances for part in instance.utterances or (instance,)]


def _al(instance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float:
    return average_lagging(times_ms, instance.source_length_ms, instance.target_units)


def _laal(instance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float:
    return length_adaptive_average_lagging(
        times_ms, instance.source_length_ms, instance.target_units
    )


def _laal_star(utterance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float:
    return laal_star_ms(times_ms, utterance.source_length_ms)


def _yaal(instance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float | None:
    return yet_another_average_lagging(
        times_ms, instance.source_length_ms, instance.target_units, instance.recording_end_ms
    )


def _mean_lag(instance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float:
    return uncut_lagging(times_ms, instance.source_length_ms, instance.target_units)


def _ap(instance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float:
    return average_proportion(times_ms, instance.source_length_ms, instance.target_units)


def _dal(instance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float:
    return differentiable_average_lagging(times_ms, instance.source_length_ms)


def _atd(instance: Instance, clock: Clock, times_ms: tuple[float, ...]) -> float | None:
    # A segment's own source cannot be cut where its first words were heard before it began.
    if instance.recording_end_ms is not None:
        return None
    ends_ms = target_ends(instance.delays_ms, times_ms, clock)
    return average_token_delay(instance.delays_ms, ends_ms)


def _start_offset(_: Instance, __: Clock, times_ms: tuple[float, ...]) -> float:
    return start_offset(times_ms)


def _end_offset(instance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float:
    return end_offset(times_ms, instance.source_length_ms)


def _overhead(instance: Instance, clock: Clock, times_ms: tuple[float, ...]) -> float | None:
    return None if clock == "ideal" else computational_overhead(times_ms, instance.delays_ms)


def _word_lag(instance: Instance, clock: Clock, times_ms: tuple[float, ...]) -> float | None:
    if instance.source_ends_ms is None or clock not in _WORD_LAG_CLOCKS:
        return None
    return mean_word_lag(times_ms, instance.source_ends_ms)


def _spoken_lag(instance: Instance, clock: Clock, times_ms: tuple[float, ...]) -> float | None:
    if instance.spoken_ends_ms is None or clock not in _WORD_LAG_CLOCKS:
        return None
    return mean_word_lag(times_ms, instance.spoken_ends_ms)


def _al_1_0(instance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float | None:
    if instance.reference_units is None:
        return None
    return average_lagging_1_0(times_ms, instance.source_length_ms, instance.reference_units)


def _ap_1_0(instance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float:
    return average_proportion_1_0(times_ms, instance.source_length_ms)


_METRICS: dict[str, Score] = {
    "AL": _al,
    "LAAL": _laal,
    "YAAL": _yaal,
    "AP": _ap,
    "DAL": _dal,
    "ATD": _atd,
    "StartOffset": _start_offset,
    "EndOffset": _end_offset,
    "mean lag": _mean_lag,
    "overhead": _overhead,
    "word lag": _word_lag,
    "spoken lag": _spoken_lag,
}
_METRICS_1_0: dict[str, Score] = {"AL (SimulEval 1.0)": _al_1_0, "AP (SimulEval 1.0)": _ap_1_0}
