"""Which latency metric follows the true word lag best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from earvoice.claims.experiment import Experiment
from earvoice.claims.judges.comparison import rank_correlation
from earvoice.claims.result import METRICS, Metric, Result
from earvoice.evaluation.resampling import Estimate, estimate

_FEWEST = 10


@dataclass(frozen=True)
class LagFollower:
    """How closely a metric follows the true word lag, by Spearman's correlation.

    Attributes:
        metric: of latency, on the ideal clock.
        over_settings: of the settings' means.
        over_inputs: of the inputs within one setting, mean over settings; without an interval.
        mean_error_ms: mean over settings of the absolute difference of the two means.
    """

    metric: Metric
    over_settings: Estimate
    over_inputs: float
    mean_error_ms: Estimate


def study_lags(experiment: Experiment) -> list[LagFollower]:
    """Return the metrics, the closest follower over settings first; none without true lags.

    A setting that has no value in one of them is left out: offline has no YAAL.
    """
    settings = [
        setting for setting in experiment.distinct if _is_measured(experiment.results[setting])
    ]
    if len(settings) < _FEWEST:
        return []
    true_ms = np.stack([experiment.word_lag_ms(setting) for setting in settings], axis=-1)
    followers = []
    for metric in METRICS:
        told_ms = np.stack(
            [experiment.latency_ms(setting, metric) for setting in settings], axis=-1
        )
        within = [_over_inputs(experiment.results[setting], metric) for setting in settings]
        varied = [correlation for correlation in within if not math.isnan(correlation)]
        followers.append(
            LagFollower(
                metric,
                estimate(rank_correlation(told_ms, true_ms)),
                fmean(varied) if varied else math.nan,
                estimate(np.abs(told_ms - true_ms).mean(-1)),
            )
        )
    return sorted(followers, key=lambda follower: -follower.over_settings.value)


def _is_measured(result: Result) -> bool:
    columns = [result.latencies_ms[metric, "ideal"] for metric in METRICS]
    return all((~np.isnan(column)).any() for column in (result.word_lags_ms, *columns))


def _over_inputs(result: Result, metric: Metric) -> float:
    told_ms = result.latencies_ms[metric, "ideal"]
    known = ~np.isnan(told_ms) & ~np.isnan(result.word_lags_ms)
    return float(rank_correlation(told_ms[known], result.word_lags_ms[known]))
