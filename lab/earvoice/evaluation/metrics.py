"""Latency metrics, and their means over a corpus on each clock that a log has.

Average lagging and its variants measure, in ms, the lag behind an ideal simultaneous translator.

The ideal one spreads its output evenly over the source: unit i leaves at (i - 1) / gamma. The
variants differ in gamma, and in which units count. Times are delays, or the times of any
computation-aware clock: the cut-off is then found on that clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import get_args

from earvoice.evaluation.instance import Clock, Instance
from earvoice.runtime.lag import average_lagging, laal_star_ms, word_lag_ms

Times = Sequence[float]


def length_adaptive_average_lagging(
    times_ms: Sequence[float], source_length_ms: float, target_units: int
) -> float:
    """Return LAAL: AL with gamma = max(n, m) / T (Polak 2022, eq. 6; Papi 2022). Never below AL."""
    return average_lagging(times_ms, source_length_ms, max(len(times_ms), target_units))


def yet_another_average_lagging(
    times_ms: Sequence[float],
    source_length_ms: float,
    target_units: int,
    recording_end_ms: float | None = None,
) -> float | None:
    """Return YAAL (Polak 2025): LAAL over the units that left before the source's end.

    Args:
        recording_end_ms: for LongYAAL, the end of the recording that the segment is part of,
            relative to the segment's start; the tail is cut there.

    Returns:
        ms; None, to be skipped, if no unit left before the end.
    """
    end_ms = source_length_ms if recording_end_ms is None else recording_end_ms
    gamma = max(len(times_ms), target_units) / source_length_ms
    total_ms, counted = 0.0, 0
    for index, time_ms in enumerate(times_ms):
        if time_ms >= end_ms:
            break
        total_ms += time_ms - index / gamma
        counted += 1
    return total_ms / counted if counted else None


def uncut_lagging(times_ms: Sequence[float], source_length_ms: float, target_units: int) -> float:
    """Return the mean lag of all units: LAAL without its cut-off.

    AL and LAAL stop at the first unit after the source's end, and so do not show how long the
    remaining units take on a machine that falls behind.
    """
    gamma = max(len(times_ms), target_units) / source_length_ms
    return sum(time_ms - index / gamma for index, time_ms in enumerate(times_ms)) / len(times_ms)


def average_proportion(
    times_ms: Sequence[float], source_length_ms: float, target_units: int
) -> float:
    """Return AP (Cho and Esipova 2016): sum of t / (T * m).

    m is the reference's length, as in SimulEval 1.1, so that AP can exceed 1.
    """
    return sum(times_ms) / (source_length_ms * target_units)


def differentiable_average_lagging(times_ms: Sequence[float], source_length_ms: float) -> float:
    """Return DAL in ms (Arivazhagan 2019).

    g'_1 = t_1, g'_i = max(t_i, g'_(i-1) + 1 / gamma); the mean of g'_i - (i - 1) / gamma over all
    units, with gamma = n / T: always the hypothesis' length.
    """
    gamma = len(times_ms) / source_length_ms
    total_ms, paced_ms = 0.0, times_ms[0]
    for index, time_ms in enumerate(times_ms):
        if index:
            paced_ms = max(time_ms, paced_ms + 1 / gamma)
        total_ms += paced_ms - index / gamma
    return total_ms / len(times_ms)


def end_offset(times_ms: Sequence[float], source_length_ms: float) -> float:
    """Return the time of the last unit after the source's end, in ms; below 0 if before it."""
    return times_ms[-1] - source_length_ms


def average_lagging_1_0(
    times_ms: Sequence[float], source_length_ms: float, reference_units: int
) -> float:
    """Return AL with m + 1 reference units, and an ideal translator that stops at its last one.

    Args:
        reference_units: m, without the end of sentence.
    """
    total_ms, counted = 0.0, 0
    for index, time_ms in enumerate(times_ms):
        step = min(index, reference_units)
        total_ms += time_ms - step * source_length_ms / (reference_units + 1)
        counted += 1
        if time_ms >= source_length_ms:
            break
    return total_ms / counted


def average_proportion_1_0(times_ms: Sequence[float], source_length_ms: float) -> float:
    """Return AP over the hypothesis' own length, the end of sentence included."""
    return sum(times_ms) / (source_length_ms * len(times_ms))


# Speech has no tokens, so the source is cut into pseudo-tokens of this length.
_SOURCE_TOKEN_MS = 300.0


def average_token_delay(delays_ms: Sequence[float], ends_ms: Sequence[float]) -> float:
    """Return ATD in ms (Kano 2023, as SimulEval 1.1 computes it for speech to text).

    Target token t of chunk c pairs with source token s = t - max(0, targets before c - sources
    before c), at most the last source token up to c. A chunk is a run of equal delays.

    Args:
        ends_ms: end of each target token, from ``target_ends``.
    """
    source_ends_ms = [0.0]
    previous_ms = 0.0
    lags_ms: list[float] = []
    for delay_ms, chunk in groupby(delays_ms):
        sources_before, targets_before = len(source_ends_ms) - 1, len(lags_ms)
        _extend(source_ends_ms, delay_ms - previous_ms)
        previous_ms = delay_ms
        shift = max(0, targets_before - sources_before)
        for target, _ in enumerate(chunk, start=targets_before + 1):
            source = min(target - shift, len(source_ends_ms) - 1)
            lags_ms.append(ends_ms[target - 1] - source_ends_ms[source])
    return fmean(lags_ms)


def target_ends(
    delays_ms: Sequence[float], times_ms: Sequence[float], clock: Clock
) -> tuple[float, ...]:
    """Return when each target token ended; as text, tokens have no length of their own.

    On ``simuleval`` a token's computation is the increment of e - d, and follows the end of the
    token before. On the other clocks computation overlaps with audio, e - d can fall, and a token
    ends when it is released.
    """
    if clock != "simuleval":
        return tuple(times_ms)
    ends_ms: list[float] = []
    end_ms = computed_before_ms = 0.0
    for delay_ms, time_ms in zip(delays_ms, times_ms, strict=True):
        computed_ms = time_ms - delay_ms
        end_ms = max(delay_ms, end_ms) + computed_ms - computed_before_ms
        computed_before_ms = computed_ms
        ends_ms.append(end_ms)
    return tuple(ends_ms)


def _extend(source_ends_ms: list[float], length_ms: float) -> None:
    """Append pseudo-tokens for more source; the remainder is one too."""
    whole_tokens, rest_ms = divmod(length_ms, _SOURCE_TOKEN_MS)
    rest = [rest_ms] if rest_ms else []
    for token_ms in [_SOURCE_TOKEN_MS] * int(whole_tokens) + rest:
        source_ends_ms.append(source_ends_ms[-1] + token_ms)


def mean_word_lag(times_ms: Sequence[float], source_ends_ms: Sequence[float]) -> float:
    """Return the mean lag of an instance's words in ms; at least one word."""
    return fmean(map(word_lag_ms, times_ms, source_ends_ms))


def computational_overhead(times_ms: Sequence[float], delays_ms: Sequence[float]) -> float:
    """Return the mean of e - d in ms: what computation adds to a unit's time."""
    return fmean(e - d for e, d in zip(times_ms, delays_ms, strict=True))


# Word lag is defined on delays and on the wall clock; ``true`` is the wall clock of a replay.
_WORD_LAG_CLOCKS: tuple[Clock, ...] = ("ideal", "true", "live")

Score = Callable[[Instance, Clock, tuple[float, ...]], float | None]
"""A metric of an instance on a clock, given its units' times on it; None if it does not apply."""


def _lag_after(ends_ms: Sequence[float] | None, clock: Clock, times_ms: Times) -> float | None:
    if ends_ms is None or clock not in _WORD_LAG_CLOCKS:
        return None
    return mean_word_lag(times_ms, ends_ms)


def _token_delay(instance: Instance, clock: Clock, times_ms: Times) -> float | None:
    # Not for segments of a long output: their first words may be heard before the segment began.
    if instance.recording_end_ms is not None:
        return None
    ends_ms = target_ends(instance.delays_ms, times_ms, clock)
    return average_token_delay(instance.delays_ms, ends_ms)


# T is the source's length, m the reference's.
METRICS: dict[str, Score] = {
    "AL": lambda it, _, t: average_lagging(t, it.source_length_ms, it.target_units),
    "LAAL": lambda it, _, t: length_adaptive_average_lagging(
        t, it.source_length_ms, it.target_units
    ),
    "YAAL": lambda it, _, t: yet_another_average_lagging(
        t, it.source_length_ms, it.target_units, it.recording_end_ms
    ),
    "AP": lambda it, _, t: average_proportion(t, it.source_length_ms, it.target_units),
    "DAL": lambda it, _, t: differentiable_average_lagging(t, it.source_length_ms),
    "ATD": _token_delay,
    "StartOffset": lambda _, __, t: t[0],
    "EndOffset": lambda it, _, t: end_offset(t, it.source_length_ms),
    "mean lag": lambda it, _, t: uncut_lagging(t, it.source_length_ms, it.target_units),
    "overhead": lambda it, clock, t: (
        None if clock == "ideal" else computational_overhead(t, it.delays_ms)
    ),
    "word lag": lambda it, clock, t: _lag_after(it.source_ends_ms, clock, t),
    "spoken lag": lambda it, clock, t: _lag_after(it.spoken_ends_ms, clock, t),
}
_METRICS_1_0: dict[str, Score] = {
    "AL (SimulEval 1.0)": lambda it, _, t: (
        None
        if it.reference_units is None
        else average_lagging_1_0(t, it.source_length_ms, it.reference_units)
    ),
    "AP (SimulEval 1.0)": lambda it, _, t: average_proportion_1_0(t, it.source_length_ms),
}


@dataclass(frozen=True)
class Mean:
    value: float | None
    count: int


@dataclass(frozen=True)
class CorpusScore:
    """All scores of a log.

    Attributes:
        silent_count: instances without output; latency skips them.
        real_time_factor: total computation / total audio, over the instances whose computation is
            known. SimulEval's metric of the same name is d_n / T, which has no computation in it.
        length_ratio: hypothesis units / reference units, over the instances that have a reference.
    """

    clocks: tuple[Clock, ...]
    rows: dict[str, dict[Clock, Mean]]
    instance_count: int
    silent_count: int
    real_time_factor: float | None
    length_ratio: float | None = None


def score_corpus(instances: Sequence[Instance], *, simuleval_1_0: bool = False) -> CorpusScore:
    """Score a log, if asked with SimulEval 1.0's metrics (its end of sentence is a unit)."""
    spoken = [instance for instance in instances if instance.unit_count]
    clocks = known_clocks(spoken)
    metrics = METRICS | _METRICS_1_0 if simuleval_1_0 else METRICS
    rows = {
        name: {clock: _mean(spoken, clock, score) for clock in clocks}
        for name, score in metrics.items()
    }
    utterances = [part for instance in spoken for part in instance.utterances or (instance,)]
    rows["LAAL*"] = {
        clock: _mean(utterances, clock, lambda it, _, t: laal_star_ms(t, it.source_length_ms))
        for clock in clocks
    }
    timed = [(it.computation_ms, it.source_length_ms) for it in instances]
    referred = [(it.unit_count, it.reference_units) for it in instances]
    return CorpusScore(
        clocks=clocks,
        rows=rows,
        instance_count=len(instances),
        silent_count=len(instances) - len(spoken),
        real_time_factor=_ratio([pair for pair in timed if pair[0] is not None]),
        length_ratio=_ratio([pair for pair in referred if pair[1] is not None]),
    )


def known_clocks(spoken: Sequence[Instance]) -> tuple[Clock, ...]:
    """Return the clocks on which every instance with output has times."""
    return tuple(
        clock
        for clock in get_args(Clock)
        if all(instance.times_ms(clock) is not None for instance in spoken)
        and (spoken or clock == "ideal")
    )


def score_instance(instance: Instance, metric: str, clock: Clock) -> float | None:
    """Return one instance's score; None if it has no output or no times on the clock."""
    return _score(instance, clock, METRICS[metric])


def _score(instance: Instance, clock: Clock, score: Score) -> float | None:
    times_ms = instance.times_ms(clock)
    return score(instance, clock, times_ms) if times_ms else None


def _mean(instances: Sequence[Instance], clock: Clock, score: Score) -> Mean:
    values = (_score(instance, clock, score) for instance in instances)
    scores = [value for value in values if value is not None]
    return Mean(fmean(scores) if scores else None, len(scores))


def _ratio(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    whole = sum(second or 0.0 for _, second in pairs)
    return sum(first or 0.0 for first, _ in pairs) / whole if whole else None
