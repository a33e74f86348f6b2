"""Long turns of an event loop are summed up."""

from __future__ import annotations

from earvoice.runtime.turn_selector import TurnSelector


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def test_long_turns_count_and_short_ones_do_not():
    """Also the one that runs."""
    clock = Clock()
    selector = TurnSelector(clock)
    clock.now_s += 0.001
    selector.select(0)
    assert selector.starved_s == 0
    clock.now_s += 0.06
    assert selector.starved_s > 0.059
    selector.select(0)
    clock.now_s += 0.04
    selector.select(0)
    clock.now_s += 0.001
    assert round(selector.starved_s, 6) == 0.1
    selector.close()
