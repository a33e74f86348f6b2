"""Claims 13 and 16: what the offline model decides. 14 and 15 need models trained otherwise."""

from __future__ import annotations

import numpy as np

from earvoice.claims import plan
from earvoice.claims.answer import Answer, Finding
from earvoice.claims.experiment import Experiment
from earvoice.claims.judges.comparison import difference, rank_correlation, untested
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.resampling import Estimate

_LARGEST_LOSS_BLEU = 0.5
_STRONG = 0.8


def judge_snapshots(experiment: Experiment) -> list[Finding]:
    """Ask whether snapshots that are better offline are better in every online setting."""
    online = [setting for setting in plan.SNAPSHOT if setting != plan.offline()]
    return [_follow(experiment, setting) for setting in online]


def _follow(experiment: Experiment, setting: ReplaySetting) -> Finding:
    offline = plan.offline()
    text = f"rank correlation of BLEU offline and with {setting.name}"
    snapshots = [
        results for results in experiment.snapshots if setting in results and offline in results
    ]
    if len(snapshots) < 3:  # noqa: PLR2004 - two points always lie in some order
        return untested(text, f"({len(snapshots)} snapshots were run; at least 3 are needed)")
    bleus = [
        np.stack(
            [experiment.resampling.bleu(results[one].statistics) for results in snapshots], axis=-1
        )
        for one in (offline, setting)
    ]
    return difference(
        f"{text}, {len(snapshots)} snapshots", rank_correlation(*bleus), "rho", _answer_follow
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


def judge_distillation(_: Experiment) -> list[Finding]:
    """Say why claim 14 has no answer."""
    text = "a model trained on a text teacher's translations less one that was not"
    return [untested(text, "(no such model was trained)")]


def judge_wait_k_training(_: Experiment) -> list[Finding]:
    """Say why claim 15 has no answer."""
    text = "offline training less training with wait-k masks, k 3 and 7"
    return [untested(text, "(no such model was trained)")]
