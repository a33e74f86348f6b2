"""Waiting before a dead child is started again."""

from hypothesis import given
from hypothesis import strategies as st

from earvoice.cli.supervisor import Backoff


def test_quick_deaths_wait_twice_as_long_each():
    """Up to the limit."""
    backoff = Backoff(first_s=0.5, limit_s=3.0)
    assert [backoff.delay_s(deaths) for deaths in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 3.0]


@given(st.integers(1, 10**9))
def test_the_wait_is_always_bounded(deaths):
    """Even after a bad weekend."""
    assert 0.5 <= Backoff().delay_s(deaths) <= 30.0


def test_a_calm_life_starts_the_row_anew():
    """A crash a day is not a crash loop."""
    backoff = Backoff(calm_s=60.0)
    assert backoff.count(5, lived_s=1.0) == 6
    assert backoff.count(5, lived_s=60.0) == 1
