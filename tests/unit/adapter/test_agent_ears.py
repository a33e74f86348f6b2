"""Sound that stops for a while is heard in stretches, and none of it is lost."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from earvoice.adapter.agent_ears import Stretches


async def heard(stretches: Stretches[str]) -> list[str]:
    return [chunk async for chunk in stretches.chunks()]


async def test_the_end_of_all_sound_ends_the_last_stretch():
    chunks: asyncio.Queue[str | None] = asyncio.Queue()
    for chunk in ("a", "b", None):
        chunks.put_nowait(chunk)
    sound = Stretches(chunks.get)
    assert await sound.wait()
    assert await heard(sound) == ["a", "b"]
    assert not await sound.wait()
    assert not await sound.wait()


async def test_a_stretch_ends_when_no_sound_comes_and_the_next_begins_with_the_next():
    chunks: asyncio.Queue[str | None] = asyncio.Queue()
    sound = Stretches(chunks.get, quiet_s=0.01)
    for expected in ("a", "b"):
        chunks.put_nowait(expected)
        assert await sound.wait()
        assert await heard(sound) == [expected]


async def test_what_a_session_has_not_asked_for_stays_for_the_next():
    """It could not begin, or broke off while it waited."""
    chunks: asyncio.Queue[str | None] = asyncio.Queue()
    sound = Stretches(chunks.get)
    chunks.put_nowait("a")
    assert await sound.wait()
    assert sound.next == "a"
    async with aclosing(sound.chunks()) as first:
        assert await anext(first) == "a"
        waiting = asyncio.ensure_future(anext(first))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    for chunk in ("b", None):
        chunks.put_nowait(chunk)
    assert await sound.wait()
    assert await heard(sound) == ["b"]
