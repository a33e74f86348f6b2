"""What a segment costs the encoder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from earvoice.encoder.model import PASSES, TIME_LIMIT_S, measure_segment_cost

pytestmark = pytest.mark.torch


def clock_of(passes_s: list[float]) -> Callable[[], float]:
    """A clock for passes that take so long: read before all, then before, after and between."""
    times_s = [0.0]
    for pass_s in passes_s:
        now_s = times_s[-1]
        times_s += [now_s, now_s + pass_s, now_s + pass_s]
    readings_s = iter(times_s)
    return lambda: next(readings_s)


def test_the_fastest_of_some_passes_counts(model):
    """What else the machine does only slows one down."""
    passes_s = [0.5, 0.125, 0.25]
    assert len(passes_s) == PASSES
    assert measure_segment_cost(model, clock_of(passes_s)) == (0.125, 0.0)


def test_a_slow_machine_measures_one_pass(model):
    """It must serve soon."""
    assert measure_segment_cost(model, clock_of([TIME_LIMIT_S])) == (TIME_LIMIT_S, 0.0)
