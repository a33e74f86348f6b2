"""Claims answered from made-up results whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from earvoice.claims import plan
from earvoice.claims.answer import Answer
from earvoice.claims.claim import CLAIMS, judge
from earvoice.claims.experiment import Attention
from earvoice.claims.judges import agreement, attention, metric, training
from earvoice.claims.judges.comparison import APART, rank_correlation
from earvoice.claims.lag_study import study_lags
from tests.lab.claims.tiny_results import HEADS, LAYERS, experiment


def line(settings, lowest, highest):
    """Return settings from fast and wrong to slow and right."""
    shares = np.linspace(lowest, highest, len(settings))
    lags_ms = np.linspace(600, 2600, len(settings))
    return dict(zip(settings, zip(shares, lags_ms, strict=True), strict=True))


@pytest.fixture(scope="module")
def whole():
    """Every setting of the plan; neighbours lag differently, so that all curves meet."""
    settings = plan.plan(LAYERS, HEADS)
    return experiment(
        {
            setting: (0.7, 600.0 + 400 * (place % 3) + 2.0 * place, 1.0)
            for place, setting in enumerate(settings)
        },
        inputs=8,
    )


def test_plan_holds_what_the_claims_need(whole):
    """With every setting run, only claims that need other trainings or measures are untested."""
    untested = {
        judgement.claim.number
        for judgement in judge(whole)
        for finding in judgement.findings
        if finding.answer is Answer.NOT_TESTED
        and finding.where != APART
        and "share of the last" not in finding.text
    }
    assert untested == {13, 14, 15}


def test_all_claims_are_there():
    """There are nineteen, in order."""
    assert [claim.number for claim in CLAIMS] == list(range(1, 20))


@pytest.mark.parametrize(
    ("edatt", "wait_k", "answer"),
    [
        ((0.6, 0.9), (0.4, 0.7), Answer.AGREES),
        ((0.4, 0.7), (0.6, 0.9), Answer.DISAGREES),
        ((0.7, 0.7), (0.7, 0.7), Answer.UNDECIDED),
    ],
)
def test_better_curve_wins(edatt, wait_k, answer):
    """EDAtt agrees with claim 6 where it is better, and only there."""
    results = experiment(
        line(plan.EDATT, *edatt) | line(plan.WAIT_K["adaptive"], *wait_k), inputs=40
    )
    assert {finding.answer for finding in attention.judge_wait_k(results)} == {answer}


def test_settings_that_were_not_run_are_told():
    """Without its settings a claim is not tested."""
    results = experiment({plan.offline(): (0.9, 9000.0)})
    answers = {finding.answer for finding in agreement.judge_chunk_size(results)}
    assert answers == {Answer.NOT_TESTED}


def test_initial_wait_delays_and_changes_nothing_else():
    """The same text, later, agrees with claim 4."""
    chosen = dict.fromkeys(plan.AGREEMENT[2], (0.8, 800.0))
    chosen |= dict.fromkeys(plan.AGREEMENT_WAITED, (0.8, 1600.0))
    findings = agreement.judge_initial_wait(experiment(chosen))
    assert {finding.answer for finding in findings} == {Answer.AGREES}


def test_online_that_reaches_offline():
    """Slow settings with offline's text agree with claim 16, worse ones disagree."""
    slow = (plan.AGREEMENT[2][-1], plan.edatt(0.05), plan.edatt(0.03))
    for share, answer in ((0.9, Answer.AGREES), (0.5, Answer.DISAGREES)):
        chosen = dict.fromkeys(slow, (share, 2500.0)) | {plan.offline(): (0.9, 9000.0)}
        findings = training.judge_ceiling(experiment(chosen))
        assert {finding.answer for finding in findings} == {answer}


def test_better_snapshots_are_better_online():
    """Snapshots in the same order offline and online agree with claim 13."""
    snapshots = [
        experiment(dict.fromkeys(plan.SNAPSHOT, (share, 1000.0)), inputs=60).results
        for share in (0.3, 0.5, 0.7, 0.9)
    ]
    results = experiment({plan.offline(): (0.9, 9000.0)}, inputs=60, snapshots=snapshots)
    assert {it.answer for it in training.judge_snapshots(results)} == {Answer.AGREES}


@pytest.mark.parametrize(("last", "answer"), [(0.7, Answer.AGREES), (0.05, Answer.DISAGREES)])
def test_attention_on_the_last_state(last, answer):
    """Attention has piled up where the last state gets most of it."""
    layer = Attention(1, np.full(40, last), np.full(40, 0.1), np.full(40, 0.02))
    results = experiment({plan.offline(): (0.9, 9000.0)}, attention=[layer])
    assert attention.judge_last_state(results)[0].answer is answer


def test_adaptive_lagging_is_never_below(whole):
    """LAAL is never below AL, whatever was translated."""
    gap = metric.judge_over_generation(whole)[0]
    assert gap.answer is Answer.AGREES
    assert gap.estimate.value == 0.0


def test_rank_correlation_with_ties():
    """Ties share their mean rank, as scipy.stats.spearmanr has them."""
    first = np.array([1.0, 2.0, 2.0, 4.0])
    assert rank_correlation(first, first) == pytest.approx(1.0)
    assert rank_correlation(first, -first) == pytest.approx(-1.0)
    assert rank_correlation(first, np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(0.948683)


def test_metrics_that_follow_the_true_lag(whole):
    """Where all words lag alike, LAAL follows the true lag over settings."""
    followers = {follower.metric: follower for follower in study_lags(whole)}
    assert followers["LAAL"].over_settings.value > 0.99
