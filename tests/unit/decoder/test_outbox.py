"""Events between engine and stream."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from earvoice.decoder.generation import EndReason, Event, Generation, Outbox
from earvoice.decoder.strategy import Progress, Prompt
from tests.fakes import END_TOKEN, state_block

GENERATION = Generation(
    1,
    state_block(),
    Prompt((END_TOKEN,), (), 3, forbid_end=False),
    8,
    END_TOKEN,
    Outbox(1, lambda: None),
)
SOME = Event(GENERATION, Progress([]), 0, 0.0, 0.0, 1)


def ended() -> Event:
    """The end of some generation."""
    return GENERATION.end(EndReason.HALTED, 0.0)


def put(outbox: Outbox, event: Event) -> None:
    """Announce and deliver, as the engine does."""
    outbox.announce()
    outbox.deliver(event)


async def test_events_come_in_order_and_finish_after_the_last() -> None:
    """After `finish`, what is left is told, then None."""
    outbox = Outbox(4, lambda: None)
    outbox.expect_generation()
    put(outbox, SOME)
    outbox.finish()
    put(outbox, ended())
    assert [await outbox.take() for _ in range(3)] == [SOME, ended(), None]


async def test_failure_comes_after_what_waits() -> None:
    """The first failure is raised once the events before it are told."""
    outbox = Outbox(4, lambda: None)
    put(outbox, SOME)
    outbox.fail(ValueError("first"))
    outbox.fail(ValueError("second"))
    put(outbox, SOME)
    assert await outbox.take() == SOME
    with pytest.raises(ValueError, match="first"):
        await outbox.take()


async def test_full_counts_what_is_on_its_way() -> None:
    """An announced event takes room before it arrives, and reading gives the room back."""
    woken: list[int] = []
    outbox = Outbox(2, lambda: woken.append(1))
    put(outbox, SOME)
    assert not outbox.full
    outbox.announce()
    assert outbox.full
    assert not woken
    await outbox.take()
    assert not outbox.full
    assert woken


class _Interruption(int):
    """A capacity at whose comparison something else happens first, as in another thread."""

    def __init__(self, _capacity: int) -> None:
        self.then: list[Callable[[], None]] = []

    def __le__(self, other: int) -> bool:
        while self.then:
            self.then.pop()()
        return super().__le__(other)


async def test_an_engine_that_fills_the_outbox_meanwhile_is_woken() -> None:
    """Whatever comes while an event is taken: who finds no room is woken when there is some."""
    capacity, slept, woken = _Interruption(2), list[int](), list[int]()
    outbox = Outbox(capacity, lambda: woken.append(1))

    def fill() -> None:
        outbox.announce()
        if outbox.full:
            slept.append(1)

    put(outbox, SOME)
    capacity.then.append(fill)
    await outbox.take()
    assert not outbox.full
    assert len(woken) >= len(slept)


async def test_room_needs_the_generation_before_the_last_to_have_ended() -> None:
    """At most one generation runs and one waits."""
    outbox = Outbox(8, lambda: None)
    outbox.expect_generation()
    await outbox.room()
    outbox.expect_generation()
    put(outbox, ended())
    await outbox.room()
    put(outbox, ended())
    await outbox.settled()
