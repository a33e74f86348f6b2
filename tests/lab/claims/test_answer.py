"""From a number and its interval to an answer."""

from __future__ import annotations

import pytest

from earvoice.claims.answer import Answer, above, equal, together
from earvoice.evaluation.resampling import Estimate

AGREES, DISAGREES, UNDECIDED, NOT_TESTED = (
    Answer.AGREES,
    Answer.DISAGREES,
    Answer.UNDECIDED,
    Answer.NOT_TESTED,
)


@pytest.mark.parametrize(
    ("value", "low", "high", "answer"),
    [
        (1.5, 0.2, 2.8, AGREES),
        (0.9, 0.5, 1.3, UNDECIDED),
        (1.5, -0.1, 3.1, UNDECIDED),
        (-1.5, -2.8, -0.2, DISAGREES),
        (-0.9, -1.3, -0.5, UNDECIDED),
    ],
)
def test_above(value, low, high, answer):
    """A difference counts from 1 BLEU on, and only if 0 is outside its interval."""
    assert above(Estimate(value, low, high), 1.0) is answer


@pytest.mark.parametrize(
    ("value", "low", "high", "answer"),
    [
        (0.1, -0.8, 0.9, AGREES),
        (0.1, -1.1, 0.9, UNDECIDED),
        (1.5, 0.2, 2.8, DISAGREES),
        (0.9, 0.2, 1.6, UNDECIDED),
    ],
)
def test_equal(value, low, high, answer):
    """Two things are alike only if the whole interval is small."""
    assert equal(Estimate(value, low, high), 1.0) is answer


@pytest.mark.parametrize(
    ("answers", "answer"),
    [
        ([AGREES, AGREES], AGREES),
        ([AGREES, UNDECIDED], UNDECIDED),
        ([AGREES, DISAGREES, UNDECIDED], DISAGREES),
        ([AGREES, NOT_TESTED], UNDECIDED),
        ([NOT_TESTED, NOT_TESTED], NOT_TESTED),
        ([], NOT_TESTED),
    ],
)
def test_together(answers, answer):
    """All parts must agree, and one that disagrees is enough."""
    assert together(answers) is answer
