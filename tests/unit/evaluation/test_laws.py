"""What holds for the latency of whatever output."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.evaluation.instance import delays as delays_of
from earvoice.evaluation.instance import (
    released_together,
    segment_elapsed,
    simuleval_elapsed,
    true_elapsed,
)
from earvoice.evaluation.metrics import (
    average_lagging,
    computational_overhead,
    differentiable_average_lagging,
    length_adaptive_average_lagging,
    score_corpus,
    uncut_lagging,
    yet_another_average_lagging,
)
from earvoice.runtime.lag import laal_star_ms
from tests.unit.evaluation.numbers import make_instance

TINY_MS = 1e-6

lengths = st.integers(300, 20_000).map(float)
units = st.integers(1, 30)
times = st.lists(st.integers(1, 25_000).map(float), min_size=1, max_size=30).map(sorted)
segments = st.lists(
    st.tuples(st.integers(1, 3000), st.integers(0, 4000), st.integers(0, 3)), min_size=1
).map(
    lambda parts: [
        released_together(float(end_ms), float(computation_ms), count)
        for end_ms, (_, computation_ms, count) in zip(
            accumulate(length for length, _, _ in parts), parts, strict=True
        )
    ]
)


@given(times, lengths, units)
def test_length_adaptive_lagging_is_never_below_average_lagging(delays, length, target):
    """Whoever writes too much gains nothing by it."""
    adaptive = length_adaptive_average_lagging(delays, length, target)
    assert adaptive >= average_lagging(delays, length, target) - TINY_MS


@given(times, lengths, units)
def test_lagging_without_a_reference_is_lagging_with_one_as_long(delays, length, target):
    """LAAL* is AL for m = n, and LAAL wherever the reference is not longer."""
    free = laal_star_ms(delays, length)
    assert free == average_lagging(delays, length, len(delays))
    if target <= len(delays):
        assert free == length_adaptive_average_lagging(delays, length, target)


@given(times, lengths, units)
def test_without_computation_all_clocks_agree(delays, length, target):
    """With e = d every computation-aware metric is the ideal one."""
    for clock in ("simuleval", "true", "live", "segment"):
        rows = score_corpus([make_instance(delays, delays, length, target, clock)]).rows
        for name, means in rows.items():
            if name == "overhead":
                assert means[clock].value == 0
            else:
                assert means[clock] == means["ideal"], name


@given(segments)
def test_clocks_are_ordered(run):
    """Units come in order: ideal <= segment <= true <= simuleval, unit by unit."""
    clocks = [delays_of(run), segment_elapsed(run), true_elapsed(run), simuleval_elapsed(run)]
    for earlier, later in pairwise(clocks):
        assert all(a <= b + TINY_MS for a, b in zip(earlier, later, strict=True))


@given(times, lengths)
def test_differentiable_lagging_is_at_least_the_mean_lag(delays, length):
    """Units that leave at once are spread out, never drawn together."""
    mean_lag = uncut_lagging(delays, length, 1)
    assert differentiable_average_lagging(delays, length) >= mean_lag - TINY_MS


@given(times, lengths, st.integers(0, 5000))
def test_a_later_run_is_later(delays, length, shift):
    """A constant overhead moves DAL and the mean lag by itself."""
    later = [delay + shift for delay in delays]
    assert computational_overhead(later, delays) == pytest.approx(shift)
    for metric in (
        differentiable_average_lagging,
        lambda t, length_ms: uncut_lagging(t, length_ms, 1),
    ):
        assert metric(later, length) == pytest.approx(metric(delays, length) + shift, abs=1e-3)


@given(times, lengths, units, st.floats(0.1, 10))
def test_lagging_scales_with_time(delays, length, target, factor):
    """No metric of the family knows what a millisecond is."""
    scaled = [delay * factor for delay in delays]
    for metric in (average_lagging, length_adaptive_average_lagging, uncut_lagging):
        # A product can round to the other side of the cut-off: times on it are left out.
        if length in delays:
            continue
        expected = factor * metric(delays, length, target)
        assert metric(scaled, length * factor, target) == pytest.approx(expected, abs=1e-3)


@given(times, lengths, units)
def test_units_after_the_end_do_not_move_yaal(delays, length, target):
    """The tail is cut; what is left is LAAL's sum over fewer units."""
    score = yet_another_average_lagging(delays, length, target)
    if delays[0] >= length:
        assert score is None
    elif delays[-1] < length:
        assert score == pytest.approx(length_adaptive_average_lagging(delays, length, target))


@given(times, lengths)
def test_long_form_yaal_cuts_at_the_recordings_end(delays, length):
    """A segment inside a long recording counts units after its own end."""
    score = yet_another_average_lagging(delays, length, 1, recording_end_ms=30_000)
    assert score == pytest.approx(uncut_lagging(delays, length, 1))
