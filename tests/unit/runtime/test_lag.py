"""Word lag and LAAL*: one definition for all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.runtime.lag import laal_star_ms, word_lag_ms


def test_a_words_lag_is_counted_from_the_end_of_what_it_translates():
    """And may be negative: a model may write before it has heard."""
    assert word_lag_ms(2500, 1800) == 700
    assert word_lag_ms(500, 800) == -300


@pytest.mark.parametrize(
    ("times_ms", "expected_ms"),
    [
        # latency.md, G1 and G2, with gamma = n / T.
        ([1000, 1000, 2000, 3000, 3500, 3500], 933.333),
        ([1120, 1120, 2260, 3400, 4050, 4050], 1223.333),
        ([1000, 2000, 3500], 1000.0),
        # Everything at the end, and everything after it.
        ([3500, 3500], 3500.0),
        ([3600, 3600], 3600.0),
    ],
)
def test_laal_star_is_average_lagging_without_a_reference(times_ms, expected_ms):
    """The words up to and with the first at the utterance's end count."""
    assert laal_star_ms(times_ms, 3500) == pytest.approx(expected_ms, abs=1e-3)


@given(st.integers(1, 20), st.floats(100, 10_000), st.floats(0, 1))
def test_a_constant_lateness_comes_out_of_laal_star(count: int, length_ms: float, share: float):
    """Words spread evenly over the utterance, each late by as much, are late by that much."""
    late_ms = share * length_ms
    times_ms = [late_ms + index * length_ms / count for index in range(count)]
    assert laal_star_ms(times_ms, length_ms) == pytest.approx(late_ms, abs=1e-6)
