"""The questions that several claims ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from earvoice.claims.answer import SMALLEST_BLEU, Answer, Finding, above, equal
from earvoice.claims.curve import Curve, compare
from earvoice.claims.experiment import Experiment
from earvoice.claims.result import Metric
from earvoice.evaluation.clock import Clock
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.resampling import Estimate, estimate

Floats = NDArray[np.float64]

WHOLE = (0.0, 1.0)
APART = "(no latency in common)"
"""Where two curves were run but cannot be compared."""


def untested(text: str, why: str = "(not run)") -> Finding:
    """Return the finding of something that has no number."""
    return Finding(text, None, "", Answer.NOT_TESTED, why)


def bleu_above(
    experiment: Experiment,
    text: str,
    first: Sequence[ReplaySetting],
    second: Sequence[ReplaySetting],
    metric: Metric = "LAAL",
    clock: Clock = "ideal",
    part: tuple[float, float] = WHOLE,
) -> Finding:
    """Ask whether the first curve lies above the second at equal latency."""
    return _compare(
        experiment, text, first, second, metric, clock, part, lambda it: above(it, SMALLEST_BLEU)
    )


def bleu_equal(
    experiment: Experiment,
    text: str,
    first: Sequence[ReplaySetting],
    second: Sequence[ReplaySetting],
    metric: Metric = "LAAL",
) -> Finding:
    """Ask whether two curves are one."""
    return _compare(
        experiment, text, first, second, metric, "ideal", WHOLE, lambda it: equal(it, SMALLEST_BLEU)
    )


def _compare(
    experiment: Experiment,
    text: str,
    first: Sequence[ReplaySetting],
    second: Sequence[ReplaySetting],
    metric: Metric,
    clock: Clock,
    part: tuple[float, float],
    ask: Callable[[Estimate], Answer],
) -> Finding:
    axis = metric if clock == "ideal" else f"{metric} on `{clock}`"
    curves = [experiment.curve(settings, metric, clock) for settings in (first, second)]
    return curve_finding(f"{text}, at equal {axis}", curves[0], curves[1], ask, part)


def curve_finding(
    text: str,
    first: Curve | None,
    second: Curve | None,
    ask: Callable[[Estimate], Answer],
    part: tuple[float, float] = WHOLE,
) -> Finding:
    """Return the finding about one curve less another over a part of the range of both."""
    compared = compare(first, second, part)
    if compared is None:
        return untested(text) if first is None or second is None else untested(text, APART)
    number, between_ms = compared
    return Finding(text, number, "BLEU", ask(number), describe_range(between_ms))


def describe_range(between_ms: tuple[float, float]) -> str:
    """Return what latencies a mean is over."""
    low_ms, high_ms = between_ms
    return f"over {low_ms / 1000:.1f} to {high_ms / 1000:.1f} s"


def difference(text: str, draws: Floats, unit: str, ask: Callable[[Estimate], Answer]) -> Finding:
    """Return the finding about a number that was computed in every draw."""
    number = estimate(draws)
    return Finding(text, number, unit, ask(number))


def rank_correlation(first: Floats, second: Floats) -> Floats:
    """Return Spearman's correlation over the last axis, ties sharing their mean rank.

    Args:
        first: [..., P].
        second: the same shape.

    Returns:
        [...]; NaN where one of them is constant.
    """
    ranks = [mean_ranks(values) for values in (first, second)]
    centred = [rank - rank.mean(-1, keepdims=True) for rank in ranks]
    products = (centred[0] * centred[1]).sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: Floats = products / np.sqrt(
            (centred[0] ** 2).sum(-1) * (centred[1] ** 2).sum(-1)
        )
    return correlation


def mean_ranks(values: Floats) -> Floats:
    """Return ranks from 0 over the last axis; ties share their mean rank."""
    rows = values.reshape(-1, values.shape[-1])
    ranks = np.empty_like(rows)
    for place, row in enumerate(rows):
        ordered = np.sort(row)
        below = np.searchsorted(ordered, row, "left")
        not_above = np.searchsorted(ordered, row, "right")
        ranks[place] = (below + not_above - 1) / 2
    return ranks.reshape(values.shape)
