"""Claims 6 to 11 and 19 (Papi 2023): EDAtt, its parameters, and AlignAtt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from earvoice.claims import plan
from earvoice.claims.answer import SMALLEST_BLEU, Answer, Finding, above
from earvoice.claims.curve import mean_between, overlap_ms
from earvoice.claims.experiment import Attention, Experiment
from earvoice.claims.judges.comparison import (
    APART,
    bleu_above,
    describe_range,
    difference,
    untested,
)
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.resampling import Estimate, estimate

_LEAST_LAG_MS = 50.0
_PAPER_SAVING = 0.3
# The fourth of six.
_PAPER_LAYER = 4 / 6


def judge_wait_k(experiment: Experiment) -> list[Finding]:
    """Ask whether EDAtt is above adaptive wait-k, without and with computation."""
    pair = plan.EDATT, plan.WAIT_K["adaptive"]
    text = "EDAtt less adaptive wait-k"
    return [
        bleu_above(experiment, text, *pair, "AL"),
        bleu_above(experiment, text, *pair, "AL", "simuleval"),
        bleu_above(experiment, text, *pair, "LAAL"),
    ]


def judge_agreement(experiment: Experiment) -> list[Finding]:
    """Ask whether EDAtt is above LA-2, and costs 30 % less."""
    pair = plan.EDATT, plan.AGREEMENT[2]
    quality = [
        bleu_above(experiment, "EDAtt less LA-2", *pair, "AL"),
        bleu_above(experiment, "EDAtt less LA-2", *pair, "AL", "simuleval"),
    ]
    overheads = (
        ("with drafts", plan.EDATT, plan.AGREEMENT[2]),
        ("without drafts", plan.EDATT_UNDRAFTED, plan.AGREEMENT_UNDRAFTED),
    )
    return quality + [_saving(experiment, *overhead) for overhead in overheads]


def _saving(
    experiment: Experiment,
    name: str,
    first: tuple[ReplaySetting, ...],
    second: tuple[ReplaySetting, ...],
) -> Finding:
    """How much less overhead EDAtt has at equal AL, as a share of LA-2's."""
    text = f"overhead that EDAtt saves of LA-2's, {name}, at equal AL"
    curves = experiment.overhead_curve(first), experiment.overhead_curve(second)
    if curves[0] is None or curves[1] is None:
        return untested(text)
    both = overlap_ms(curves[0], curves[1])
    if both is None:
        return untested(text, APART)
    saved = 1 - mean_between(curves[0], both) / mean_between(curves[1], both)
    finding = difference(text, saved, "share", _answer_saving)
    return replace(finding, where=describe_range(both))


def _answer_saving(saving: Estimate) -> Answer:
    if saving.low >= _PAPER_SAVING / 2:
        return Answer.AGREES
    return Answer.DISAGREES if saving.high < _PAPER_SAVING / 2 else Answer.UNDECIDED


def judge_last_state(experiment: Experiment) -> list[Finding]:
    """Ask whether attention piles up on the last state, and whether dropping it matters."""
    findings = [_last_share(experiment, attention) for attention in experiment.attention]
    if not findings:
        findings = [untested("share of the last state")]
    text = "EDAtt less EDAtt that keeps the last state"
    dropped = tuple(plan.edatt(alpha) for alpha in plan.STUDY_ALPHAS)
    return [*findings, bleu_above(experiment, text, dropped, plan.WITH_LAST_STATE)]


def _last_share(experiment: Experiment, attention: Attention) -> Finding:
    share, before, even = (
        estimate(experiment.resampling.mean(values))
        for values in (attention.last_share, attention.previous_share, attention.even_share)
    )
    where = f"(before it {before.value:.3f}, if even {even.value:.3f})"
    text = f"layer {attention.layer}: share of the last state"
    return Finding(text, share, "share", _answer_pile(share, before), where)


def _answer_pile(share: Estimate, before: Estimate) -> Answer:
    """Piled up: more than twice what its neighbour gets, and more than a quarter of all."""
    if share.low > max(0.25, 2 * before.high):
        return Answer.AGREES
    return Answer.DISAGREES if share.high < max(0.25, 2 * before.low) else Answer.UNDECIDED


def judge_lambda(experiment: Experiment) -> list[Finding]:
    """Ask whether a larger lambda is later at the same alpha, and no better at the same latency."""
    findings = []
    for small, large in zip(plan.LAMBDAS, plan.LAMBDAS[1:], strict=False):
        first, second = plan.LAMBDA[small], plan.LAMBDA[large]
        findings += [
            _later(experiment, small, large),
            _no_better(
                bleu_above(experiment, f"lambda {large} less lambda {small}", second, first)
            ),
        ]
    return findings


def _later(experiment: Experiment, small: int, large: int) -> Finding:
    pairs = [
        pair
        for pair in zip(plan.LAMBDA[small], plan.LAMBDA[large], strict=True)
        if experiment.has(*pair)
    ]
    text = f"LAAL of lambda {large} less lambda {small} at the same alpha"
    if not pairs:
        return untested(text)
    delay_ms = np.mean(
        [experiment.latency_ms(second) - experiment.latency_ms(first) for first, second in pairs],
        axis=0,
    )
    return difference(text, delay_ms, "ms", lambda it: above(it, _LEAST_LAG_MS))


def _no_better(finding: Finding) -> Finding:
    """Turn "is better" round: what is not better by 1 BLEU within the interval agrees."""
    number = finding.estimate
    if number is None:
        return finding
    if number.high < SMALLEST_BLEU:
        answer = Answer.AGREES
    else:
        answer = Answer.DISAGREES if finding.answer is Answer.AGREES else Answer.UNDECIDED
    return replace(finding, answer=answer)


def judge_layers(experiment: Experiment) -> list[Finding]:
    """Ask whether a middle layer is above the first, the last and the mean of all."""
    layers = {number: plan.layer(number) for number in range(1, experiment.layers + 1)}
    middle = layers[round(experiment.layers * _PAPER_LAYER)]
    return [
        bleu_above(experiment, "middle layer less first", middle, layers[1]),
        bleu_above(experiment, "middle layer less last", middle, layers[experiment.layers]),
        bleu_above(experiment, "middle layer less mean of layers", middle, plan.MEAN_OF_LAYERS),
        _last_is_slow(experiment, middle, layers[experiment.layers]),
    ]


def _last_is_slow(
    experiment: Experiment, middle: tuple[ReplaySetting, ...], last: tuple[ReplaySetting, ...]
) -> Finding:
    text = (
        f"lowest LAAL of the last layer less that of the middle, alpha ≤ {max(plan.STUDY_ALPHAS):g}"
    )
    if not experiment.has(*middle, *last):
        return untested(text)
    lowest = [
        np.min([experiment.latency_ms(setting) for setting in settings], axis=0)
        for settings in (last, middle)
    ]
    return difference(text, lowest[0] - lowest[1], "ms", lambda it: above(it, _LEAST_LAG_MS))


def judge_heads(experiment: Experiment) -> list[Finding]:
    """Ask whether the mean of the heads is above each head."""
    mean = tuple(plan.edatt(alpha) for alpha in plan.STUDY_ALPHAS)
    return [
        bleu_above(experiment, f"mean of heads less head {number}", mean, plan.head(number))
        for number in range(1, experiment.heads + 1)
    ]


def judge_align_att(experiment: Experiment) -> list[Finding]:
    """Ask whether AlignAtt is above EDAtt."""
    text = "AlignAtt less EDAtt"
    return [bleu_above(experiment, text, plan.ALIGN_ATT, plan.EDATT)]
