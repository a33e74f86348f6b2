"""Capacity in sessions, from what a segment costs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from earvoice.runtime.capacity import MOST_SESSIONS, SegmentCost, fit_cost

seconds = st.floats(1e-6, 100)


def test_a_pass_of_100_ms_in_800_ms_bears_five_sessions():
    """0.7 of 800 ms is 560 ms: five passes, and no sixth."""
    assert SegmentCost(0.1).session_count(800, 0.7) == 5


def test_what_sessions_share_is_paid_once():
    """0.1 s in common and 0.05 s each: nine in 0.56 s."""
    assert SegmentCost(0.05, 0.1).session_count(800, 0.7) == 9


@given(seconds, seconds, st.integers(1, 60_000), st.floats(0.05, 1))
def test_the_engine_is_kept_at_its_ratio_or_one_session_is_taken(own, shared, segment_ms, ratio):
    """As many as fit, never none, never more than 10,000."""
    cost = SegmentCost(own, shared)
    count = cost.session_count(segment_ms, ratio)
    assert 1 <= count <= MOST_SESSIONS
    available_s = ratio * segment_ms / 1000
    assert count == 1 or count * own + shared <= available_s * (1 + 1e-9)
    assert count == MOST_SESSIONS or (count + 1) * own + shared > available_s * (1 - 1e-9)


@given(seconds, seconds, seconds, st.integers(2, 64))
def test_a_fitted_line_meets_its_measurements(once, one, slope, many):
    """One session and several cost what was measured."""
    cost = fit_cost(once, one + slope, one + slope * many, many)
    assert abs(cost.own_s + cost.shared_s - (once + one + slope)) < 1e-6 * many * (one + slope)
    assert abs(many * (cost.own_s - once) + cost.shared_s - (one + slope * many)) < 1e-3


@given(seconds, seconds, seconds, st.integers(2, 64))
def test_noise_in_a_measurement_makes_no_negative_cost(once, one, several, many):
    """Several that took less than one are several for nothing."""
    cost = fit_cost(once, one, several, many)
    assert cost.own_s > 0
    assert cost.shared_s >= 0
