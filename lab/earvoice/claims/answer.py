"""What the numbers say about a claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from earvoice.evaluation.resampling import Estimate

SMALLEST_BLEU = 1.0
"""Smaller differences are undecided."""


class Answer(Enum):
    """Of a finding, or of a claim."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"
    NOT_TESTED = "not tested"


@dataclass(frozen=True)
class Finding:
    """One tested part of a claim.

    Attributes:
        text: what was compared.
        estimate: the number; None where there is none.
        unit: of the number.
        answer: what it says.
        where: the latencies that it is the mean over, or why there is no number.
    """

    text: str
    estimate: Estimate | None
    unit: str
    answer: Answer
    where: str = ""


def above(estimate: Estimate, least: float) -> Answer:
    """Answer "this is above 0": by at least ``least``, and 0 outside the interval.

    As far below 0 it disagrees; anything else is undecided.
    """
    if estimate.value >= least and estimate.low > 0:
        return Answer.AGREES
    if estimate.value <= -least and estimate.high < 0:
        return Answer.DISAGREES
    return Answer.UNDECIDED


def equal(estimate: Estimate, margin: float) -> Answer:
    """Answer "this is 0, give or take the margin": the interval must lie within.

    It disagrees when the value is outside and the interval leaves out 0.
    """
    if -margin <= estimate.low and estimate.high <= margin:
        return Answer.AGREES
    if abs(estimate.value) >= margin and not estimate.low <= 0 <= estimate.high:
        return Answer.DISAGREES
    return Answer.UNDECIDED


def together(answers: Sequence[Answer]) -> Answer:
    """Answer a claim of several parts: all must agree, and one that disagrees is enough.

    Parts that were not tested leave the claim undecided, or untested if there are no others.
    """
    if not answers or set(answers) == {Answer.NOT_TESTED}:
        return Answer.NOT_TESTED
    if Answer.DISAGREES in answers:
        return Answer.DISAGREES
    return Answer.AGREES if set(answers) == {Answer.AGREES} else Answer.UNDECIDED
