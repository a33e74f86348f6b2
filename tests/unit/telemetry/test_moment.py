"""Times of spans."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from earvoice.telemetry.moment import WallAnchor


@given(st.floats(0, 1e7), st.floats(0, 3600), st.integers(0, 2 * 10**18))
def test_durations_do_not_depend_on_the_wall_clock(begin_s: float, duration_s: float, wall: int):
    """It is read once; what happens to it later moves no span."""
    anchor = WallAnchor(lambda: 5, lambda: wall)
    measured_ns = anchor.wall_ns(begin_s + duration_s) - anchor.wall_ns(begin_s)
    assert abs(measured_ns - duration_s * 1e9) < 10
