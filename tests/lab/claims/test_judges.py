"""Claims answered from made-up results whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from earvoice.claims import plan
from earvoice.claims.answer import Answer
from earvoice.claims.claim import CLAIMS, TRAINING_CLAIMS, judge, judge_trainings
from earvoice.claims.experiment import Attention
from earvoice.claims.judges import agreement, attention, metric, training
from earvoice.claims.judges.comparison import APART, rank_correlation
from earvoice.claims.lag_study import study_lags
from earvoice.claims.training_study import TrainingStudy
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
    """With every setting run, every claim about one checkpoint is tested."""
    untested = {
        judgement.claim.number
        for judgement in judge(whole)
        for finding in judgement.findings
        if finding.answer is Answer.NOT_TESTED
        and finding.where != APART
        and "share of the last" not in finding.text
    }
    assert untested == set()


def test_all_claims_are_there():
    """There are nineteen, each once."""
    numbers = [claim.number for claim in (*CLAIMS, *TRAINING_CLAIMS)]
    assert sorted(numbers) == list(range(1, 20))


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


def trained(share, later_ms=0.0, label="made up", curves=plan.TRAINING_CURVES):
    """Return a checkpoint that has a share right offline, and less the earlier it writes."""
    chosen = {plan.offline(): (share, 9000.0)}
    for settings in curves.values():
        for place, setting in enumerate(settings):
            lost = 0.1 * (len(settings) - place)
            chosen[setting] = (share - lost, 800.0 + 600 * place + later_ms)
    return replace(experiment(chosen, inputs=60), label=label)


@pytest.mark.parametrize(
    ("online", "answer"),
    [((0.3, 0.5, 0.7, 0.9), Answer.AGREES), ((0.9, 0.7, 0.5, 0.3), Answer.DISAGREES)],
)
def test_snapshots_in_one_order(online, answer):
    """Snapshots in the same order offline and online agree with claim 13, turned they disagree."""
    snapshots = [
        experiment(
            dict.fromkeys(plan.TRAINING_ONLINE, (share, 1000.0))
            | {plan.offline(): (0.4 + 0.1 * place, 9000.0)},
            inputs=60,
        )
        for place, share in enumerate(online)
    ]
    findings = training.judge_snapshots(TrainingStudy(snapshots=snapshots))
    assert len(findings) == len(plan.TRAINING_ONLINE)
    assert {it.answer for it in findings} == {answer}


def test_two_snapshots_say_nothing():
    """Two points always lie in some order."""
    findings = training.judge_snapshots(TrainingStudy(snapshots=[trained(0.5), trained(0.9)]))
    assert {it.answer for it in findings} == {Answer.NOT_TESTED}
    assert findings[0].where == "(2 snapshots were run; at least 3 are needed)"


@pytest.mark.parametrize(
    ("plain", "distilled", "answer"),
    [
        (0.6, 0.9, Answer.AGREES),
        (0.9, 0.6, Answer.DISAGREES),
        (0.8, 0.8, Answer.UNDECIDED),
    ],
)
def test_distilled_training_wins_at_equal_lagging(plain, distilled, answer):
    """The better of two trainings wins, and neither of two that are alike."""
    pair = [trained(plain, label="plain"), trained(distilled, label="distilled")]
    findings = training.judge_distillation(TrainingStudy(distilled=pair))
    assert [it.text.split(":")[0] for it in findings] == 2 * ["distilled less plain"]
    assert {it.answer for it in findings} == {answer}


def test_distilled_training_that_only_waits_longer_wins_nothing():
    """What a later checkpoint gains at each setting is lost at equal latency."""
    plain, patient = trained(0.8, label="plain"), trained(0.9, 600.0, "patient")
    gap = patient.bleu(plan.TRAINING_ONLINE[0])[0] - plain.bleu(plan.TRAINING_ONLINE[0])[0]
    findings = training.judge_distillation(TrainingStudy(distilled=[plain, patient]))
    assert gap > 5
    assert all(abs(it.estimate.value) < gap / 2 for it in findings)


def test_offline_training_against_each_masked_one():
    """Claim 15 has a part for each k, and one that beats offline training is enough against it."""
    family = [trained(0.7, label="offline"), trained(0.5, label="k 3"), trained(0.9, label="k 7")]
    findings = training.judge_wait_k_training(TrainingStudy(wait_k=family))
    assert {it.text.split(":")[0]: it.answer for it in findings} == {
        "offline less k 3": Answer.AGREES,
        "offline less k 7": Answer.DISAGREES,
    }


@pytest.mark.parametrize(
    ("whole", "truncated", "answer"),
    [
        (0.6, 0.9, Answer.AGREES),
        (0.9, 0.6, Answer.DISAGREES),
        (0.8, 0.8, Answer.UNDECIDED),
    ],
)
def test_truncated_inputs_are_asked_offline_and_at_equal_lagging(whole, truncated, answer):
    """A training on truncated inputs is judged offline and by each policy's curve."""
    pair = [
        trained(share, label=label, curves=plan.TRUNCATION_CURVES)
        for share, label in ((whole, "whole"), (truncated, "cut"))
    ]
    findings = training.judge_truncation(*pair)
    assert [it.text for it in findings] == [
        "cut less whole: offline, greedy",
        *(f"cut less whole: {name}, at equal LAAL" for name in ("EDAtt", "AlignAtt", "LA-2")),
    ]
    assert {it.answer for it in findings} == {answer}


def test_policies_that_were_not_asked_of_both_trainings_are_told():
    """A training that was run before these settings were asked has numbers of some only."""
    pair = trained(0.8, label="whole"), trained(0.8, label="cut", curves=plan.TRUNCATION_CURVES)
    answers = [it.answer for it in training.judge_truncation(*pair)]
    assert answers == [*2 * [Answer.UNDECIDED], *2 * [Answer.NOT_TESTED]]


def test_trainings_that_were_not_run_are_told():
    """Without checkpoints all three claims are not tested, and each says why."""
    judgements = judge_trainings(TrainingStudy())
    assert {judgement.answer for judgement in judgements} == {Answer.NOT_TESTED}
    assert all(finding.where for judgement in judgements for finding in judgement.findings)


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
