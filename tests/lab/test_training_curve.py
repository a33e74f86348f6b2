"""What the measurements of a run say."""

from pathlib import Path

import pytest

from earvoice.training.curve import Curve
from earvoice.training.metric import Score

pytestmark = pytest.mark.torch


def curve_of(folder: Path, scores: dict[int, list[Score]]) -> Curve:
    """A curve on disk."""
    curve = Curve(folder / "curve.csv")
    for step, measured in scores.items():
        curve.add(step, 10.0 * step, measured)
    return Curve(folder / "curve.csv")


def test_quality_is_the_mean_bleu_of_the_sets_that_have_one(tmp_path: Path) -> None:
    """Real voices without references do not count while anything is translated."""
    real = Score("real", 3, 0.9)
    curve = curve_of(
        tmp_path,
        {
            100: [Score("a", 3, 0.5, 10.0, 1.0), Score("b", 3, 0.5, 20.0, 1.0), real],
            200: [Score("a", 3, 0.4, 30.0, 1.0), Score("b", 3, 0.4, 2.0, 1.0), real],
            300: [Score("a", 3, 0.4, 15.0, 1.0), Score("b", 3, 0.4, 15.0, 1.0), real],
        },
    )
    assert curve.qualities() == {100: 15.0, 200: 16.0, 300: 15.0}
    assert curve.best_step() == 200
    assert curve.since_best() == 1


def test_of_equal_measurements_the_later_is_the_best(tmp_path: Path) -> None:
    """A run that stands still has not got worse; without BLEU fewer errors are better."""
    curve = curve_of(tmp_path, {1: [Score("a", 3, 0.5)], 2: [Score("a", 3, 0.5)]})
    assert curve.best_step() == 2
    assert curve.since_best() == 0


def test_nothing_measured_has_no_best(tmp_path: Path) -> None:
    """A run that ends before its first measurement has no best step."""
    curve = Curve(tmp_path / "curve.csv")
    assert curve.best_step() is None
    assert curve.since_best() == 0
