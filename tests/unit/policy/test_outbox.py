"""Events on their way to one client: in order, bounded, errors last."""

from __future__ import annotations

import asyncio

import pytest

from earvoice.policy.event import Event, ReplicaLeaving, SessionTotals, TailChanged
from earvoice.policy.outbox import CAPACITY, Outbox
from earvoice.runtime.errors import IdleError

LEAVING = ReplicaLeaving(1.0)


async def everything(outbox: Outbox) -> list[Event]:
    return [event async for event in outbox.events()]


async def test_nothing_comes_after_the_last_event():
    """Neither a farewell nor an error."""
    outbox, totals = Outbox(), SessionTotals()
    await outbox.put(totals, last=True)
    await outbox.announce(LEAVING)
    await outbox.close(IdleError("too late"))
    assert await everything(outbox) == [totals]


async def test_a_farewell_does_not_wait_for_a_slow_client():
    """Everything else does."""
    outbox = Outbox()
    for index in range(CAPACITY):
        await outbox.put(ReplicaLeaving(float(index)))
    await outbox.announce(LEAVING)
    waiting = asyncio.ensure_future(outbox.put(SessionTotals(), last=True))
    done, _ = await asyncio.wait([waiting], timeout=0)
    assert not done
    assert (await everything(outbox))[CAPACITY] == LEAVING


async def test_an_error_comes_behind_what_waits():
    """Released words are not lost."""
    outbox = Outbox()
    await outbox.put(LEAVING)
    await outbox.close(IdleError("nobody"))
    events = outbox.events()
    assert await anext(events) == LEAVING
    with pytest.raises(IdleError):
        await anext(events)


async def test_only_the_newest_tail_waits():
    """A slow reader gets no history of tails."""
    outbox = Outbox()
    for text in ("a", "b", "c"):
        await outbox.put(TailChanged(text, 0))
    await outbox.close()
    assert await everything(outbox) == [TailChanged("c", 0)]


async def test_nothing_is_sent_behind_an_error():
    """Neither what a session still finds after its client's mistake, nor a summary."""
    outbox = Outbox()
    for index in range(CAPACITY):
        await outbox.put(ReplicaLeaving(float(index)))
    waiting = asyncio.ensure_future(outbox.put(LEAVING))
    await asyncio.sleep(0)
    await outbox.close(IdleError("nobody"))
    await waiting
    await outbox.put(SessionTotals(), last=True)
    events = outbox.events()
    assert [await anext(events) for _ in range(CAPACITY)] == [
        ReplicaLeaving(float(index)) for index in range(CAPACITY)
    ]
    with pytest.raises(IdleError):
        await anext(events)
