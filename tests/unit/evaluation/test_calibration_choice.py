"""What makes one curve better than another."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.evaluation.calibration import (
    MOST_POINTS,
    TriedPoint,
    best_of,
    default_of,
    front_of,
    grid_of,
    quality,
)

points = st.lists(
    st.builds(
        TriedPoint,
        parameter=st.integers(1, 100),
        laal_ms=st.floats(0, 5000),
        score=st.floats(0, 60),
    ),
    min_size=1,
    max_size=15,
)


def test_quality_is_what_a_curve_reaches_in_time():
    """Before the first point it falls with the lag; behind the last one nothing is lost."""
    assert quality([TriedPoint(1, 3000, 30.0)]) == pytest.approx(
        (10.0 + 12.5 + 15.0 + 17.5 + 20.0 + 25.0 + 30.0) / 7
    )
    assert quality([TriedPoint(1, 1000, 30.0)]) == 30.0
    assert quality([TriedPoint(1, 1000, 20.0), TriedPoint(2, 2000, 30.0)]) == (
        (20.0 + 22.5 + 25.0 + 27.5 + 30.0 + 30.0 + 30.0) / 7
    )


def test_a_curve_that_begins_a_little_later_may_still_be_better():
    """It is judged by what it says at all lags, not by the one that it just misses."""
    early = [TriedPoint(1, 990, 20.0), TriedPoint(2, 2000, 22.0)]
    late = [TriedPoint(1, 1010, 26.0), TriedPoint(2, 2000, 28.0)]
    assert quality(late) > quality(early) + 5.0


@given(points)
def test_the_front_is_beaten_by_nobody(tried: list[TriedPoint[int]]):
    """Later points of it are better; each other point is beaten or equalled by one of it."""
    front = front_of(tried)
    assert all(a.laal_ms <= b.laal_ms for a, b in pairwise(front))
    assert all(a.score < b.score for a, b in pairwise(front))
    assert all(
        any(best.laal_ms <= point.laal_ms and best.score >= point.score for best in front)
        for point in tried
    )


@given(points, st.floats(0, 5000))
def test_a_grid_is_the_fronts_ends_and_some_between(
    tried: list[TriedPoint[int]], most_lag_ms: float
):
    """It is short and fast first; the default keeps the lag if any point does."""
    front = front_of(tried)
    values = [point.parameter for point in front]
    grid = grid_of(tried)
    assert 1 <= len(grid) <= MOST_POINTS
    assert (grid[0], grid[-1]) == (values[0], values[-1])
    chosen = default_of(tried, most_lag_ms)
    kept = [point for point in front if point.laal_ms <= most_lag_ms]
    assert chosen == (kept[-1].parameter if kept else values[0])


def test_the_usual_stays_unless_another_gains_enough():
    """Chance alone makes one of several candidates look better."""
    assert best_of({"all": 20.0, "1": 20.4}, "all", 0.5) == "all"
    assert best_of({"all": 20.0, "1": 20.6}, "all", 0.5) == "1"
    assert best_of({"3": 20.0, "1": 20.1}, "3", 0.0) == "1"
