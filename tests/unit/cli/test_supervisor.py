"""Waiting before a dead child is started again."""

from hypothesis import given
from hypothesis import strategies as st

from earvoice.cli.supervisor import CALM_S, count_death, restart_delay_s


def test_quick_deaths_wait_twice_as_long_each():
    """Up to the limit."""
    delays = [restart_delay_s(deaths) for deaths in (1, 2, 3, 6, 7, 8)]
    assert delays == [0.5, 1.0, 2.0, 16.0, 30.0, 30.0]


@given(st.integers(1, 10**9))
def test_the_wait_is_always_bounded(deaths):
    """Even after a bad weekend."""
    assert 0.5 <= restart_delay_s(deaths) <= 30.0


def test_a_calm_life_starts_the_row_anew():
    """A crash a day is not a crash loop."""
    assert count_death(5, lived_s=1.0) == 6
    assert count_death(5, lived_s=CALM_S) == 1
