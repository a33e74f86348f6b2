"""Paired bootstrap."""

from __future__ import annotations

import numpy as np
import pytest

from earvoice.evaluation.resampling import Resampling, band, estimate

NAN = float("nan")


def test_first_row_is_the_test_set():
    """Row 0 is the plain result."""
    resampling = Resampling(3, resamples=10)
    assert resampling.mean(np.array([1.0, 2.0, 6.0]))[0] == pytest.approx(3.0)


def test_draws_are_seeded():
    """The same seed draws the same inputs, another seed others."""
    values = np.arange(20.0)
    first, same, other = (
        Resampling(20, resamples=50, seed=seed).mean(values) for seed in (1, 1, 2)
    )
    assert list(first) == list(same)
    assert list(first) != list(other)


def test_draws_are_paired():
    """A difference that every input has is the same in every draw."""
    resampling = Resampling(20, resamples=50)
    values = np.random.default_rng(0).normal(size=20)
    differences = resampling.mean(values + 2.0) - resampling.mean(values)
    assert differences == pytest.approx(2.0)


def test_unknown_values_are_left_out():
    """An input without output has no latency and moves no mean."""
    means = Resampling(4, resamples=0).mean(np.array([1.0, NAN, 3.0, NAN]))
    assert means[0] == pytest.approx(2.0)


def test_interval_holds_what_most_draws_give():
    """The interval of a mean is close to the normal one."""
    values = np.random.default_rng(0).normal(size=400)
    number = estimate(Resampling(400).mean(values))
    half = 1.96 * values.std() / 20
    assert number.low == pytest.approx(number.value - half, abs=0.02)
    assert number.high == pytest.approx(number.value + half, abs=0.02)


def test_bands_hold_the_middle_of_what_is_known():
    """A band of mostly unknown values is none, and such a number has no interval."""
    assert band(np.arange(101.0)) == pytest.approx((2.5, 97.5))
    assert band(np.array([1.0, NAN])) is None
    assert np.isnan(estimate(np.array([1.0, 1.0, NAN])).low)
