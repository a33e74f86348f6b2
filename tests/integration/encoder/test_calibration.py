"""What a segment costs the encoder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from earvoice.encoder.model import PASSES, PREFIX_S, TIME_LIMIT_S, measure_segment_cost

pytestmark = pytest.mark.torch


def clock_of(passes_s: list[float], whole_s: float = 0.0) -> Callable[[], float]:
    """A clock for segments that take so long, and whole utterances.

    It is read before all; before each pass, after its segment, after its utterance, and between.
    """
    times_s = [0.0]
    for pass_s in passes_s:
        now_s = times_s[-1]
        end_s = now_s + pass_s + whole_s
        times_s += [now_s, now_s + pass_s, end_s, end_s]
    readings_s = iter(times_s)
    return lambda: next(readings_s)


def test_the_fastest_of_some_passes_counts(model):
    """What else the machine does only slows one down."""
    passes_s = [0.5, 0.125, 0.25]
    assert len(passes_s) == PASSES
    assert measure_segment_cost(model, clock_of(passes_s)) == (0.125, 0.0)


def test_a_segment_bears_its_share_of_the_whole_utterance(model):
    """Which is heard once more when it has ended."""
    share = model.description.default_segment_ms / (1000 * PREFIX_S)
    cost_s, _ = measure_segment_cost(model, clock_of([0.5] * PASSES, whole_s=0.25))
    assert cost_s == pytest.approx(0.5 + 0.25 * share)


def test_a_slow_machine_measures_one_pass(model):
    """It must serve soon."""
    assert measure_segment_cost(model, clock_of([TIME_LIMIT_S])) == (TIME_LIMIT_S, 0.0)
