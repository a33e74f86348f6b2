"""The papers' claims, each with what answers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from earvoice.claims import plan
from earvoice.claims.answer import Answer, Finding, together
from earvoice.claims.experiment import Experiment
from earvoice.claims.judges import agreement, attention, metric, schedule, training
from earvoice.claims.training_study import TrainingStudy

Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Claim(Generic[Subject]):
    """A claim of a paper, about one checkpoint's results or about several trainings.

    Attributes:
        number: its place in the list.
        statement: what is claimed.
        source: the paper.
        experiment: what was run.
        rule: when the answer is "agrees".
        judge: what asks the results.
    """

    number: int
    statement: str
    source: str
    experiment: str
    rule: str
    judge: Callable[[Subject], list[Finding]]


@dataclass(frozen=True)
class Judgement:
    """A claim's answer.

    Attributes:
        claim: the claim.
        findings: its parts.
    """

    claim: Claim[Any]
    findings: Sequence[Finding]

    @property
    def answer(self) -> Answer:
        """What the parts say together."""
        return together([finding.answer for finding in self.findings])


def judge(experiment: Experiment) -> list[Judgement]:
    """Return the answer to every claim about one checkpoint."""
    return [Judgement(claim, claim.judge(experiment)) for claim in CLAIMS]


def judge_trainings(study: TrainingStudy) -> list[Judgement]:
    """Return the answer to every claim about trainings."""
    return [Judgement(claim, claim.judge(study)) for claim in TRAINING_CLAIMS]


def _listed(values: Sequence[object]) -> str:
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}"


_CHUNKS = f"in chunks of {_listed(plan.CHUNKS_MS)} ms"
_MIDDLE_CHUNKS = f"in chunks of {_listed(plan.MIDDLE_CHUNKS_MS)} ms"
_ALPHAS = f"EDAtt with alpha {_listed(plan.ALPHAS)}"
_STUDY_ALPHAS = f"with alpha {_listed(plan.STUDY_ALPHAS)}"
_WAITS = (
    f"wait-k with k {_listed(plan.WAITS)}, checked every {plan.WAIT_K_SEGMENT_MS} ms (the paper: "
    "every 280 ms)"
)
_SCHEDULES = (
    f"k {_listed(plan.SCHEDULE_WAITS_FRAMES)}, s {_listed(plan.SCHEDULE_STRIDES_FRAMES)} and N "
    f"{_listed(plan.SCHEDULE_TOKENS)}"
)
_TRAINING_EDATT = f"EDAtt with alpha {_listed(plan.TRAINING_ALPHAS)}"
_TRAINING_WAITS = f"adaptive wait-k with k {_listed(plan.WAITS)}"
_TRAINING_SEGMENT = f"decided every {plan.TRAINING_SEGMENT_MS} ms"
_BLEU = "at least 1 BLEU higher, and 0 outside the interval"
_EQUAL = "the interval lies within 1 BLEU of 0"

CLAIMS: tuple[Claim[Experiment], ...] = (
    Claim(
        1,
        "The chunk size rules LA-2: 250 ms is far below 1000 ms.",
        "Polák 2022",
        f"LA-2 {_CHUNKS}",
        f"BLEU {_BLEU}; LAAL rises with the chunk by 100 ms or more",
        agreement.judge_chunk_size,
    ),
    Claim(
        2,
        "LA-2, LA-3 and LA-4 lie on one curve.",
        "Polák 2022",
        f"LA-2 {_CHUNKS}; LA-3 and LA-4 {_MIDDLE_CHUNKS}",
        _EQUAL,
        agreement.judge_agreement_depth,
    ),
    Claim(
        3,
        "LA-2 is at least SP-2, SP-2 at least Hold-6; SP-1 is far below.",
        "Polák 2022",
        f"SP-2 and LA-2 in chunks of {_listed(plan.CHUNKS_MS[1:])} ms, SP-1 of "
        f"{_listed(plan.EARLY_CHUNKS_MS)} ms and Hold-6 of {_listed(plan.LONG_CHUNKS_MS)} ms, all "
        f"with beam 5; LA-2 {_CHUNKS} and Hold-6 of {_listed(plan.EARLY_CHUNKS_MS)} ms, greedy",
        f"each {_BLEU}",
        agreement.judge_shared_prefix,
    ),
    Claim(
        4,
        "A first chunk of 2 s brings little BLEU and more AL.",
        "Polák 2022",
        f"LA-2 in chunks of {_listed(plan.CHUNKS_MS[:3])} ms, with and without",
        f"BLEU: {_EQUAL}; AL: 100 ms or more later",
        agreement.judge_initial_wait,
    ),
    Claim(
        5,
        "Over-generation makes AL negative; LAAL is never below AL.",
        "Papi 2022, Polák 2022",
        "every setting and input",
        "LAAL ≥ AL without exception; AL below 0 occurs, mostly where output is too long",
        metric.judge_over_generation,
    ),
    Claim(
        6,
        "EDAtt is above adaptive wait-k by 1 to 2.5 BLEU at equal AL and AL_CA.",
        "Papi 2023",
        f"{_ALPHAS}; adaptive {_WAITS}",
        _BLEU,
        attention.judge_wait_k,
    ),
    Claim(
        7,
        "EDAtt is above LA-2 at equal AL, with 30 % less overhead.",
        "Papi 2023",
        f"{_ALPHAS}; LA-2 {_CHUNKS}; overhead with drafts and without",
        f"{_BLEU}; half of the 30 % or more is saved",
        attention.judge_agreement,
    ),
    Claim(
        8,
        "Attention piles up on the last state, and dropping that state matters.",
        "Papi 2023",
        f"share of the last state by layer; EDAtt {_STUDY_ALPHAS} with and without it",
        f"more than a quarter, and twice its neighbour's; BLEU {_BLEU}",
        attention.judge_last_state,
    ),
    Claim(
        9,
        "A larger lambda moves the curve to the right and brings no quality.",
        "Papi 2023",
        f"lambda {_listed(plan.LAMBDAS)} {_STUDY_ALPHAS}",
        "50 ms or more later at the same alpha; the interval is below 1 BLEU",
        attention.judge_lambda,
    ),
    Claim(
        10,
        "First layers are worse, the last is never fast, the middle is best, the mean of layers is "
        "worse.",
        "Papi 2023",
        f"every layer, and their mean, {_STUDY_ALPHAS}",
        f"{_BLEU}; the last layer's lowest LAAL is 50 ms or more higher",
        attention.judge_layers,
    ),
    Claim(
        11,
        "The mean of the heads is at least as good as every head.",
        "Papi 2023",
        f"each head of the calibrated layer {_STUDY_ALPHAS}",
        _BLEU,
        attention.judge_heads,
    ),
    Claim(
        12,
        "Fixed detection is better at low latency, adaptive at high.",
        "Papi 2022",
        f"{_WAITS}, both detections",
        f"in the lower and the upper half of the common LAAL: {_BLEU}",
        schedule.judge_detection,
    ),
    Claim(
        16,
        "At high latency online reaches offline.",
        "Polák 2022, Papi 2023",
        "LA-2 at 2000 ms and EDAtt with small alpha against offline",
        "the interval is at most 0.5 BLEU below offline",
        training.judge_ceiling,
    ),
    Claim(
        17,
        "The (k, s, N) settings span 1 to 4 s.",
        "Nguyen 2021",
        _SCHEDULES,
        "lowest AL at most 1 s, highest at least 4 s",
        schedule.judge_span,
    ),
    Claim(
        18,
        "DAL ranks policies that release several words at once worse than AL and LAAL do.",
        "Papi 2023",
        "ranks of all settings",
        "the correlation is above 0",
        metric.judge_differentiable,
    ),
    Claim(
        19,
        "AlignAtt is at least as good as EDAtt.",
        "Papi 2023b",
        f"AlignAtt with f {_listed(plan.FRAMES)}; {_ALPHAS}",
        _BLEU,
        attention.judge_align_att,
    ),
)

TRAINING_CLAIMS: tuple[Claim[TrainingStudy], ...] = (
    Claim(
        13,
        "A better offline model is better at every latency.",
        "Papi 2022",
        f"snapshots of one training, offline and online: {_TRAINING_EDATT}, "
        f"{_TRAINING_WAITS} and LA-2, {_TRAINING_SEGMENT}",
        "Spearman's rho 0.8 or more for each setting, and 0 outside the interval",
        training.judge_snapshots,
    ),
    Claim(
        14,
        "Knowledge distillation brings 1 BLEU or more at equal LAAL.",
        "Papi 2022",
        "two trainings that differ in a text teacher's translations alone; "
        f"{_TRAINING_EDATT} and {_TRAINING_WAITS}, {_TRAINING_SEGMENT}",
        _BLEU,
        training.judge_distillation,
    ),
    Claim(
        15,
        "Offline training is at least as good as wait-k training at each k.",
        "Papi 2022",
        "trainings that differ in wait-k masks of cross-attention alone, by words of the CTC "
        f"transcript, with k 3 and 7; {_TRAINING_WAITS}, {_TRAINING_SEGMENT}",
        _BLEU,
        training.judge_wait_k_training,
    ),
)
