"""The client, the network that breaks and the real policy service: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from earvoice.client import (
    Committed,
    EndOfUtterance,
    GoAway,
    HoldN,
    Reconnected,
    SegmentDone,
    ServerUnavailableError,
    Started,
    Summary,
    TranslationEvent,
    TranslationOptions,
    TranslationUpdate,
    connect,
)
from earvoice.client.audio import send_fast
from tests.e2e.calling import pieces
from tests.integration.policy.conftest import Start
from tests.integration.policy.scripted_backends import RATE_HERTZ
from tests.proxy import Proxy, open_proxy

KEY = "5a" * 32
OPTIONS = TranslationOptions(("de",), catch_up="every-segment", reconnect_limit_s=20)
CHUNKS = pieces(bytes(RATE_HERTZ * 2 * 30), 9000)
# Two utterances end before the audio does.
LONG_CHUNKS = pieces(bytes(RATE_HERTZ * 2 * 50), 9000)

OnEvent = Callable[[TranslationEvent], None]


def ignore(event: TranslationEvent) -> None:
    """Nothing happens."""


async def translate(
    address: str,
    on_event: OnEvent = ignore,
    chunks: AsyncIterator[bytes] | list[bytes | TranslationUpdate] = CHUNKS,
    options: TranslationOptions = OPTIONS,
) -> list[TranslationEvent]:
    events = []
    async with connect(address) as client, asyncio.timeout(200):
        source = send_fast(chunks) if isinstance(chunks, list) else chunks
        async for event in client.translate(source, options):
            events.append(event)
            on_event(event)
    return events


async def held(until: asyncio.Event, chunks: list[bytes] = CHUNKS) -> AsyncIterator[bytes]:
    """All but the last at once, and that one afterwards: nothing can end before the break."""
    for chunk in chunks[:-1]:
        yield chunk
    await until.wait()
    yield chunks[-1]


def told(events: list[TranslationEvent]) -> list[object]:
    """What the caller was told, without times, tokens and losses."""
    return [kept for event in events for kept in _told(event)]


def _told(event: TranslationEvent) -> list[object]:
    match event:
        case Committed():
            words = [
                (word.text, word.starts_word, word.utterance, word.source_end_ms, word.delay_ms)
                for word in event.words
            ]
            return [(words, event.acknowledged_samples)]
        case SegmentDone():
            return [replace(event, computation_ms=0.0, queue_ms=0.0)]
        case EndOfUtterance():
            return [replace(event, resume_token=b"")]
        case Summary():
            # On a busy machine an answer may be waited for too long, and asked for elsewhere.
            return [replace(event, computation_ms=0.0, replays=0)]
    return []


def breaking(proxy: Proxy, places: set[int], kind: type[TranslationEvent]) -> OnEvent:
    """Reset every connection after the given events of a kind."""
    count = 0

    def on_event(event: TranslationEvent) -> None:
        nonlocal count
        if isinstance(event, kind):
            count += 1
            if count in places:
                proxy.reset()

    return on_event


@pytest.mark.parametrize("kind", [Committed, SegmentDone, EndOfUtterance])
@pytest.mark.parametrize("places", [{1}, {2, 5}, {1, 2, 3, 4}])
async def test_a_connection_that_is_reset_costs_nothing(start: Start, kind, places):
    """Wherever it happens, and however often."""
    running = await start(resume_keys=KEY)
    whole = await translate(running.address, chunks=LONG_CHUNKS)
    async with open_proxy(running.address) as proxy:
        audio = held(proxy.broken, LONG_CHUNKS)
        broken = await translate(proxy.address, breaking(proxy, places, kind), audio)
    assert told(broken) == told(whole)
    assert sum(isinstance(event, Started) for event in broken) == 1
    losses = [event for event in broken if isinstance(event, Reconnected)]
    assert losses
    assert all(loss.reason and loss.attempt_count > 0 for loss in losses)


async def test_updates_are_sent_again_and_taken_once(start: Start):
    """Each keeps its place, whichever side of a loss it lies on."""
    chunks = [*CHUNKS[:9], TranslationUpdate(policy=HoldN(2), segment_ms=500), *CHUNKS[9:40]]
    chunks += [TranslationUpdate(segment_ms=1100), *CHUNKS[40:]]
    running = await start(resume_keys=KEY)
    whole = await translate(running.address, chunks=chunks)
    async with open_proxy(running.address) as proxy:
        on_event = breaking(proxy, set(range(1, 60, 3)), SegmentDone)
        broken = await translate(proxy.address, on_event, chunks)
    assert told(broken) == told(whole)


async def test_a_source_is_listened_to_while_nobody_is_there(start: Start):
    """A microphone does not wait: the network comes back only once all has been said."""
    running = await start(resume_keys=KEY)
    whole = await translate(running.address)
    said = asyncio.Event()
    lost = asyncio.Event()

    async def audio() -> AsyncIterator[bytes]:
        for index, chunk in enumerate(CHUNKS):
            if index == len(CHUNKS) // 3:
                await lost.wait()
            yield chunk
        said.set()

    async with open_proxy(running.address) as proxy:

        async def come_back() -> None:
            await said.wait()
            proxy.target = running.address

        returning = asyncio.create_task(come_back())
        events = []
        async with connect(proxy.address) as client, asyncio.timeout(200):
            async for event in client.translate(audio(), OPTIONS):
                events.append(event)
                if isinstance(event, Committed) and not lost.is_set():
                    proxy.target = "127.0.0.1:1"
                    proxy.reset()
                    lost.set()
        await returning
    assert told(events) == told(whole)


async def test_a_merging_session_says_every_word_once(start: Start):
    """However segments are cut after a loss, words come in order and utterances end to end."""
    running = await start(resume_keys=KEY)
    options = replace(OPTIONS, catch_up="merge")
    async with open_proxy(running.address) as proxy:
        on_event = breaking(proxy, {1, 2, 4}, Committed)
        events = await translate(proxy.address, on_event, held(proxy.broken), options)
    words = [word for event in events if isinstance(event, Committed) for word in event.words]
    # A word that an utterance's end cuts apart belongs to both.
    said = [(int(word.text[1:]), word.utterance) for word in words]
    assert said == sorted(set(said))
    assert {number for number, _ in said} == set(range(said[-1][0] + 1))
    ends = [event for event in events if isinstance(event, EndOfUtterance)]
    assert [end.start_ms for end in ends] == [0.0, *(end.end_ms for end in ends[:-1])]
    assert ends[-1].end_ms == 30_000
    assert any(isinstance(event, Reconnected) for event in events)


async def test_a_connection_that_goes_dead_is_left(start: Start):
    """Nobody says so; an answer that does not come, and no health either, does."""
    running = await start(resume_keys=KEY)
    options = replace(OPTIONS, stall_timeout_s=0.5)
    whole = await translate(running.address)
    async with open_proxy(running.address) as proxy:
        cut = False

        def on_event(event: TranslationEvent) -> None:
            nonlocal cut
            if isinstance(event, Committed) and not cut:
                cut = True
                proxy.go_dead()

        broken = await translate(proxy.address, on_event, held(proxy.broken), options)
    assert told(broken) == told(whole)
    # A busy machine may leave the live one silent for as long, too.
    first, *_ = [event for event in broken if isinstance(event, Reconnected)]
    assert "stopped answering" in first.reason


async def test_another_replica_takes_over(start: Start):
    """Of two addresses the second is as good, also for who finds the first one gone at once."""
    first, second = await start(resume_keys=KEY), await start(resume_keys=KEY)
    whole = await translate(second.address)
    async with open_proxy(first.address) as proxy:

        def on_event(event: TranslationEvent) -> None:
            if isinstance(event, EndOfUtterance):
                proxy.target = "127.0.0.1:1"
                proxy.reset()

        broken = await translate(f"{proxy.address},{second.address}", on_event, held(proxy.broken))
        late = await translate(f"{proxy.address},{second.address}")
    assert told(broken) == told(late) == told(whole)


async def test_a_server_that_leaves_is_left_at_the_end_of_an_utterance(start: Start):
    """The stream moves while the old replica still runs, and that one is free then."""
    first, second = await start(resume_keys=KEY), await start(resume_keys=KEY)
    whole = await translate(second.address)
    draining: list[asyncio.Task[None]] = []
    moved = asyncio.Event()

    async def audio() -> AsyncIterator[bytes]:
        for index, chunk in enumerate(CHUNKS):
            if index == len(CHUNKS) - 5:
                await moved.wait()
            yield chunk

    def on_event(event: TranslationEvent) -> None:
        if isinstance(event, Committed) and not draining:
            draining.append(asyncio.create_task(first.service.drain(4.0)))
        if isinstance(event, Reconnected):
            moved.set()

    events = []
    async with connect(f"{first.address},{second.address}") as client, asyncio.timeout(200):
        async for event in client.translate(audio(), OPTIONS):
            events.append(event)
            on_event(event)
    await draining[0]
    assert told(events) == told(whole)
    assert any(isinstance(event, GoAway) for event in events)
    [loss] = [event for event in events if isinstance(event, Reconnected)]
    assert "stopping" in loss.reason


async def test_who_does_not_want_to_go_on_is_told(start: Start):
    """The error says where to resume."""
    running = await start(resume_keys=KEY)
    async with open_proxy(running.address) as proxy:
        with pytest.raises(ServerUnavailableError) as caught:
            await translate(
                proxy.address,
                breaking(proxy, {1}, EndOfUtterance),
                held(proxy.broken),
                replace(OPTIONS, reconnect_limit_s=0),
            )
    assert caught.value.resume_token
    assert caught.value.acknowledged_samples > 0
