"""What one setting did on the test set: numbers for each input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from earvoice.evaluation.bleu import sentence_statistics
from earvoice.evaluation.clock import Clock
from earvoice.evaluation.instance import Instance
from earvoice.evaluation.metrics.average_lagging import (
    average_lagging,
    length_adaptive_average_lagging,
    yet_another_average_lagging,
)
from earvoice.evaluation.metrics.differentiable_lagging import differentiable_average_lagging
from earvoice.evaluation.metrics.token_delay import average_token_delay, target_ends
from earvoice.evaluation.metrics.word_lag import computational_overhead, mean_word_lag
from earvoice.evaluation.replay.setting import ReplaySetting

Floats = NDArray[np.float64]
Metric = Literal["AL", "LAAL", "DAL", "ATD", "YAAL"]


@dataclass(frozen=True)
class Result:
    """One setting's numbers, an entry an input.

    Latency is NaN where an input had no output.

    Attributes:
        setting: what was run.
        statistics: [N, 10], what each input adds to BLEU.
        latencies_ms: [N] by metric and clock.
        word_lags_ms: [N], mean true lag of the words: release less the end of the spoken word
            that was attended to; NaN where unknown.
        attended_lags_ms: [N], the same with the end of the audio that was attended to.
        overheads_ms: [N] by clock, mean of e - d.
        computation_ms: [N].
        audio_ms: [N].
        output_words: [N].
        reference_words: [N].
        releases: [N], at how many moments words left.
    """

    setting: ReplaySetting
    statistics: Floats
    latencies_ms: dict[tuple[Metric, Clock], Floats]
    word_lags_ms: Floats
    attended_lags_ms: Floats
    overheads_ms: dict[Clock, Floats]
    computation_ms: Floats
    audio_ms: Floats
    output_words: Floats
    reference_words: Floats
    releases: Floats


def measure(setting: ReplaySetting, instances: Sequence[Instance], language: str) -> Result:
    """Return a setting's result.

    Args:
        setting: what was run.
        instances: its log, with references.
        language: of the target, for BLEU's tokenizer.
    """
    clocks: tuple[Clock, ...] = ("ideal", "simuleval", "true")

    def each(score: Callable[[Instance], float | None]) -> Floats:
        values = [score(instance) for instance in instances]
        return np.array([np.nan if value is None else value for value in values])

    return Result(
        setting,
        sentence_statistics(
            [instance.prediction for instance in instances],
            [instance.reference or "" for instance in instances],
            language,
        ),
        {
            (metric, clock): each(partial(_lag, metric, clock))
            for metric in METRICS
            for clock in clocks
        },
        each(_word_lag),
        each(_attended_lag),
        {clock: each(partial(_overhead, clock)) for clock in clocks[1:]},
        each(lambda instance: instance.computation_ms),
        each(lambda instance: instance.source_length_ms),
        each(lambda instance: instance.unit_count),
        each(lambda instance: instance.target_units),
        each(lambda instance: len(list(groupby(instance.delays_ms)))),
    )


def _lag(metric: Metric, clock: Clock, instance: Instance) -> float | None:
    times_ms = instance.times_ms(clock)
    return METRICS[metric](instance, clock, times_ms) if times_ms else None


def _al(instance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float:
    return average_lagging(times_ms, instance.source_length_ms, instance.target_units)


def _laal(instance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float:
    return length_adaptive_average_lagging(
        times_ms, instance.source_length_ms, instance.target_units
    )


def _dal(instance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float:
    return differentiable_average_lagging(times_ms, instance.source_length_ms)


def _atd(instance: Instance, clock: Clock, times_ms: tuple[float, ...]) -> float:
    ends_ms = target_ends(instance.delays_ms, times_ms, clock)
    return average_token_delay(instance.delays_ms, ends_ms)


def _yaal(instance: Instance, _: Clock, times_ms: tuple[float, ...]) -> float | None:
    return yet_another_average_lagging(times_ms, instance.source_length_ms, instance.target_units)


def _word_lag(instance: Instance) -> float | None:
    if not instance.unit_count or instance.spoken_ends_ms is None:
        return None
    return mean_word_lag(instance.delays_ms, instance.spoken_ends_ms)


def _attended_lag(instance: Instance) -> float | None:
    if not instance.unit_count or instance.source_ends_ms is None:
        return None
    return mean_word_lag(instance.delays_ms, instance.source_ends_ms)


def _overhead(clock: Clock, instance: Instance) -> float | None:
    times_ms = instance.times_ms(clock)
    return computational_overhead(times_ms, instance.delays_ms) if times_ms else None


METRICS: dict[Metric, Callable[[Instance, Clock, tuple[float, ...]], float | None]] = {
    "AL": _al,
    "LAAL": _laal,
    "DAL": _dal,
    "ATD": _atd,
    "YAAL": _yaal,
}
