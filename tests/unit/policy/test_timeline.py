"""The stages of a word add up to the whole, on either clock."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.policy.arrival_clock import ArrivalClock
from earvoice.policy.timeline import HopTimings, LiveTimeline, StageTimings, TrueTimeline

MS = st.floats(0, 5000)


def parts_sum(stages: StageTimings) -> float:
    return sum(value for name, value in asdict(stages).items() if name != "total_ms")


def hop(compute: float, queue: float, network: float) -> HopTimings:
    return HopTimings(compute + queue + network, compute + queue, compute)


@given(st.lists(MS, min_size=9, max_size=9))
def test_live_stages_add_up(values):
    """Merge wait, waiting, two hops and our own work are all there is."""
    merge, wait, own, *hops = values
    arrival = 10.0 + merge / 1000
    started = arrival + wait / 1000
    timeline = LiveTimeline(0.0, 10.0, arrival, started)
    timeline.encoder = hop(*hops[:3])
    deciding = hop(*hops[3:])
    now = started + (sum(hops) + own) / 1000
    committed = timeline.commit_time(now, deciding)
    assert parts_sum(committed.stages) == pytest.approx(committed.stages.total_ms, abs=1e-6)
    assert committed.stages.total_ms == pytest.approx((now - 10.0) * 1000)
    assert committed.stages.decision_ms == pytest.approx(own, abs=1e-6)
    assert committed.elapsed_ms == pytest.approx(now * 1000)


@given(st.lists(MS, min_size=4, max_size=4))
def test_true_stages_add_up(values):
    """Computation only, after the segment before is finished."""
    encode, decode, arrival, finished = values
    timeline = TrueTimeline(arrival, finished)
    timeline.encoder = hop(encode, 7, 7)
    committed = timeline.commit_time(0.0, hop(decode, 9, 9))
    assert parts_sum(committed.stages) == pytest.approx(committed.stages.total_ms)
    assert committed.elapsed_ms == pytest.approx(max(arrival, finished) + encode + decode)


def test_the_true_clock_shows_the_backlog():
    """60 s in 1 s segments, 1.3 s of computation each: the last word is 19 s late."""
    finished = 0.0
    for second in range(1, 61):
        timeline = TrueTimeline(second * 1000.0, finished)
        timeline.encoder = hop(1300, 0, 0)
        finished = timeline.finished_ms
    assert finished - 60_000 == pytest.approx(19_000)


def test_the_origin_is_the_earliest_seen():
    """A message that came late does not move the start of the stream."""
    clock = ArrivalClock(8000)
    clock.note(800, 10.10)
    clock.note(1600, 10.50)
    assert clock.origin_s == pytest.approx(10.0)


def test_the_origin_follows_a_drifting_sound_card():
    """After the window has passed, only newer messages count."""
    clock = ArrivalClock(8000)
    clock.note(800, 10.10)
    clock.note(8000 * 100, 110.2)
    assert clock.origin_s == pytest.approx(10.2)
