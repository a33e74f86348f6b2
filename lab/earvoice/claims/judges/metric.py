"""Claims 5 and 18: what the latency metrics themselves do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from earvoice.claims import plan
from earvoice.claims.answer import Answer, Finding
from earvoice.claims.experiment import Experiment
from earvoice.claims.judges.comparison import difference, mean_ranks, rank_correlation, untested
from earvoice.claims.result import Metric
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.resampling import Estimate, estimate

Floats = NDArray[np.float64]


def judge_over_generation(experiment: Experiment) -> list[Finding]:
    """Ask whether over-generation makes AL negative while LAAL is never below AL."""
    pairs = [
        (result.latencies_ms["AL", "ideal"], result.latencies_ms["LAAL", "ideal"], result)
        for result in experiment.results.values()
    ]
    gaps_ms = np.concatenate([laal - al for al, laal, _ in pairs])
    als_ms = np.concatenate([al for al, _, _ in pairs])
    longer = np.concatenate([it.output_words > it.reference_words for _, _, it in pairs])
    lowest_gap_ms = float(np.nanmin(gaps_ms))
    negative = als_ms < 0
    return [
        Finding(
            "lowest LAAL less AL",
            Estimate(lowest_gap_ms, lowest_gap_ms, lowest_gap_ms),
            "ms",
            Answer.AGREES if lowest_gap_ms >= 0 else Answer.DISAGREES,
            f"over {np.isfinite(gaps_ms).sum()} translated inputs",
        ),
        _negative(negative, longer),
        _share_below(experiment, "LA-2", plan.AGREEMENT[2][0]),
        _share_below(experiment, "Hold-6", plan.HOLD[0]),
    ]


def _negative(negative: NDArray[np.bool_], longer: NDArray[np.bool_]) -> Finding:
    count, over = int(negative.sum()), int((negative & longer).sum())
    text = "of translated inputs with AL below 0, the share that is longer than the reference"
    if not count:
        return Finding(text, None, "", Answer.UNDECIDED, "(there are none)")
    share = over / count
    answer = Answer.AGREES if share > 0.5 else Answer.DISAGREES  # noqa: PLR2004 - most of them
    return Finding(text, Estimate(share, share, share), "share", answer, f"of {count}")


def _share_below(experiment: Experiment, name: str, setting: ReplaySetting) -> Finding:
    text = f"{name} at {setting.segment_ms} ms: share of inputs with AL below 0"
    if not experiment.has(setting):
        return untested(text)
    below = (experiment.results[setting].latencies_ms["AL", "ideal"] < 0).astype(np.float64)
    share = estimate(experiment.resampling.mean(below))
    return Finding(text, share, "share", Answer.AGREES if share.low > 0 else Answer.UNDECIDED)


def judge_differentiable(experiment: Experiment) -> list[Finding]:
    """Ask whether DAL ranks settings that release many words at once worse than AL and LAAL do."""
    settings = experiment.distinct
    words = np.stack([_words_at_once(experiment, setting) for setting in settings], axis=-1)
    dal = _ranks_of(experiment, "DAL")
    metrics: tuple[Metric, ...] = ("AL", "LAAL")
    findings = [
        difference(
            f"rank correlation of words a release with (rank by DAL less rank by {metric})",
            rank_correlation(words, dal - _ranks_of(experiment, metric)),
            "rho",
            _answer_correlation,
        )
        for metric in metrics
    ]
    return [replace(finding, where=f"over {len(settings)} settings") for finding in findings]


def _words_at_once(experiment: Experiment, setting: ReplaySetting) -> Floats:
    result = experiment.results[setting]
    return experiment.resampling.ratio(result.output_words, result.releases)


def _ranks_of(experiment: Experiment, metric: Metric) -> Floats:
    values = np.stack(
        [experiment.latency_ms(setting, metric) for setting in experiment.distinct], axis=-1
    )
    return mean_ranks(values)


def _answer_correlation(correlation: Estimate) -> Answer:
    if correlation.low > 0:
        return Answer.AGREES
    return Answer.DISAGREES if correlation.high < 0 else Answer.UNDECIDED
