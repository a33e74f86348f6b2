"""Claims 13 to 16: what the offline model decides, and how it was trained; truncated inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from earvoice.claims import plan
from earvoice.claims.answer import SMALLEST_BLEU, Answer, Finding, above
from earvoice.claims.experiment import Experiment
from earvoice.claims.judges.comparison import (
    curve_finding,
    difference,
    rank_correlation,
    untested,
)
from earvoice.claims.training_study import TrainingStudy
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.resampling import Estimate

_LARGEST_LOSS_BLEU = 0.5
_STRONG = 0.8
_UNTRAINED = "(no such model was trained)"


def judge_snapshots(study: TrainingStudy) -> list[Finding]:
    """Ask whether snapshots that are better offline are better in every online setting."""
    return [_follow(study.snapshots, setting) for setting in plan.TRAINING_ONLINE]


def _follow(snapshots: Sequence[Experiment], setting: ReplaySetting) -> Finding:
    offline = plan.offline()
    text = f"rank correlation of BLEU offline and with {setting.name}"
    run = [snapshot for snapshot in snapshots if snapshot.has(setting, offline)]
    if len(run) < 3:  # noqa: PLR2004 - two points always lie in some order
        return untested(text, f"({len(run)} snapshots were run; at least 3 are needed)")
    bleus = [
        np.stack([snapshot.bleu(one) for snapshot in run], axis=-1) for one in (offline, setting)
    ]
    return difference(
        f"{text}, {len(run)} snapshots", rank_correlation(*bleus), "rho", _answer_follow
    )


def _answer_follow(correlation: Estimate) -> Answer:
    if correlation.value >= _STRONG and correlation.low > 0:
        return Answer.AGREES
    return Answer.DISAGREES if correlation.high < _STRONG else Answer.UNDECIDED


def judge_ceiling(experiment: Experiment) -> list[Finding]:
    """Ask whether slow online settings lose at most 0.5 BLEU of offline's."""
    offline = plan.offline()
    findings = []
    for name, setting in (
        ("LA-2 at 2000 ms", plan.AGREEMENT[2][-1]),
        ("EDAtt with alpha 0.05", plan.edatt(0.05)),
        ("EDAtt with alpha 0.03", plan.edatt(0.03)),
    ):
        text = f"offline less {name}, both greedy"
        if not experiment.has(offline, setting):
            findings.append(untested(text))
            continue
        loss = experiment.bleu(offline) - experiment.bleu(setting)
        findings.append(difference(text, loss, "BLEU", _answer_loss))
    return findings


def _answer_loss(loss: Estimate) -> Answer:
    if loss.high <= _LARGEST_LOSS_BLEU:
        return Answer.AGREES
    return Answer.DISAGREES if loss.low > _LARGEST_LOSS_BLEU else Answer.UNDECIDED


def judge_distillation(study: TrainingStudy) -> list[Finding]:
    """Ask whether a training with a teacher's translations is above one without them."""
    if not study.distilled:
        text = "a model trained on a text teacher's translations less one that was not"
        return [untested(text, _UNTRAINED)]
    plain, distilled = study.distilled
    return [_lead(distilled, plain, name) for name in ("EDAtt", "wait-k, adaptive")]


def judge_wait_k_training(study: TrainingStudy) -> list[Finding]:
    """Ask whether an offline training is above those with wait-k masks, under wait-k."""
    if not study.wait_k[1:]:
        text = "offline training less training with wait-k masks, k 3 and 7"
        return [untested(text, _UNTRAINED)]
    offline, *trained = study.wait_k
    return [_lead(offline, masked, "wait-k, adaptive") for masked in trained]


def judge_truncation(whole: Experiment, truncated: Experiment) -> list[Finding]:
    """Ask whether a training on truncated inputs too is above one on whole inputs."""
    offline, curves = plan.offline(), plan.TRUNCATION_CURVES
    text = f"{truncated.label} less {whole.label}: offline, greedy"
    if not (whole.has(offline) and truncated.has(offline)):
        return [untested(text)]
    gain = truncated.bleu(offline) - whole.bleu(offline)
    return [
        difference(text, gain, "BLEU", lambda it: above(it, SMALLEST_BLEU)),
        *(_lead(truncated, whole, name, curves) for name in curves),
    ]


def _lead(
    first: Experiment,
    second: Experiment,
    name: str,
    curves: Mapping[str, Sequence[ReplaySetting]] = plan.TRAINING_CURVES,
) -> Finding:
    """Ask whether the first checkpoint's curve of a policy lies above the second's."""
    settings = curves[name]
    return curve_finding(
        f"{first.label} less {second.label}: {name}, at equal LAAL",
        first.curve(settings),
        second.curve(settings),
        lambda it: above(it, SMALLEST_BLEU),
    )
