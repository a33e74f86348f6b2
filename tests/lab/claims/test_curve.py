"""Curves: interpolation, and differences at equal latency."""

from __future__ import annotations

import numpy as np
import pytest

from earvoice.claims.curve import Curve, mean_difference, overlap_ms


def curve(*points):
    return Curve.through(
        [np.full(3, float(latency)) for latency, _ in points],
        [np.full(3, float(bleu)) for _, bleu in points],
    )


def test_bleu_between_settings_is_interpolated():
    """Between the settings before and after, BLEU is on the straight line (Papi 2023)."""
    assert list(curve((3000, 20), (1000, 10)).at(1500)) == [12.5, 12.5, 12.5]


def test_range_is_what_the_settings_reach():
    """A curve says nothing beyond its settings."""
    line = curve((1000, 10), (3000, 20))
    assert line.range_ms == (1000, 3000)
    assert line.reaches(1000)
    assert not line.reaches(3001)


def test_curves_without_a_common_latency():
    """There is nothing to compare where the ranges do not meet."""
    assert overlap_ms(curve((1000, 1), (2000, 2)), curve((2000, 1), (3000, 2))) is None
    assert overlap_ms(curve((1000, 1), (2500, 2)), curve((2000, 1), (3000, 2))) == (2000, 2500)


def test_difference_of_parallel_curves():
    """A curve that lies 2 BLEU higher everywhere is 2 BLEU better in every draw."""
    higher, lower = curve((1000, 12), (3000, 22)), curve((1000, 10), (2000, 15), (3000, 20))
    assert mean_difference(higher, lower, (1000, 3000)) == pytest.approx(2.0)


def test_draws_may_turn_the_order():
    """Where a draw makes the slower setting the faster one, its line still runs from left."""
    turned = Curve.through(
        [np.array([1000.0, 2000.0]), np.array([2000.0, 1000.0])],
        [np.array([10.0, 20.0]), np.array([20.0, 10.0])],
    )
    assert list(turned.at(1500)) == [15.0, 15.0]
