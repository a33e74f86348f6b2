"""Those who are refused come again one after the other."""

from __future__ import annotations

import pytest

from earvoice.runtime.return_times import EARLIEST_S, INTERVAL_S, LATEST_S, ReturnTimes


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_one_after_the_other():
    """Those who knock together do not come back together."""
    times = ReturnTimes(Clock())
    waits_ms = [times.next_ms() for _ in range(20)]
    first_ms, step_ms = 1000 * EARLIEST_S, 1000 * INTERVAL_S
    assert waits_ms == [first_ms + turn * step_ms for turn in range(20)]


def test_one_who_waits_alone_comes_back_soon():
    """Nobody pays for those who have long been let in."""
    clock = Clock()
    times = ReturnTimes(clock)
    for _ in range(20):
        times.next_ms()
    clock.now_s += LATEST_S
    assert times.next_ms() == 1000 * EARLIEST_S


@pytest.mark.parametrize("clients", [4, 16, 36])
def test_as_many_come_in_a_second_however_many_wait(clients: int):
    """Up to `LATEST_S` of them, each coming when it was told."""
    clock = Clock()
    times = ReturnTimes(clock)
    due_s = [clock.now_s] * clients
    for _ in range(20 * clients):
        turn = due_s.index(min(due_s))
        clock.now_s = due_s[turn]
        due_s[turn] += times.next_ms() / 1000
    settled_s = clock.now_s
    count = 0
    while min(due_s) < settled_s + LATEST_S:
        turn = due_s.index(min(due_s))
        clock.now_s = due_s[turn]
        due_s[turn] += times.next_ms() / 1000
        count += 1
    assert count <= LATEST_S / INTERVAL_S + 1


def test_nobody_waits_longer_than_the_longest_time():
    """A crowd is spread over that time instead."""
    times = ReturnTimes(Clock())
    waits_ms = [times.next_ms() for _ in range(1000)]
    assert max(waits_ms) <= 1000 * LATEST_S
    assert min(waits_ms) >= 1000 * EARLIEST_S
    drawn_ms = waits_ms[100:]
    assert len(set(drawn_ms)) > 500
    assert min(drawn_ms) < 2000
    assert max(drawn_ms) > 9000
