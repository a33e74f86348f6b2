"""A stream joins its client's audio, its session and its outbox, and ends in good order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from earvoice.policy.event import (
    Event,
    ReplicaLeaving,
    SessionSnapshot,
    SessionTotals,
    TailChanged,
    WordsReleased,
)
from earvoice.policy.settings import PolicySettings
from earvoice.policy.stream import CAPACITY, Outbox, TranslationStream
from earvoice.policy.utterance import UtteranceState
from earvoice.runtime.errors import (
    EarvoiceError,
    IdleError,
    InvalidAudioError,
    NotReadyError,
    SessionTooLongError,
    find_error,
)
from tests.fakes import ScriptedDecoder, ScriptedEncoder
from tests.unit.policy.running import OPTIONS, seconds


def stream_of(encoder: ScriptedEncoder | None = None, **settings: int) -> TranslationStream:
    return TranslationStream(
        OPTIONS, PolicySettings(**settings), encoder or ScriptedEncoder(), ScriptedDecoder()
    )


async def sent(*messages: bytes, then: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    """Messages, and then the end of the audio, or silence until told."""
    for message in messages:
        yield message
    if then is not None:
        await then.wait()


async def collect(stream: TranslationStream, audio: AsyncIterator[bytes]) -> list[Event]:
    return [event async for event in stream.events(audio)]


async def failure_of(stream: TranslationStream, audio: AsyncIterator[bytes]) -> EarvoiceError:
    """What ends a stream, found as the service's edge finds it."""
    with pytest.raises(ExceptionGroup) as caught:
        await collect(stream, audio)
    error = find_error(caught.value)
    assert error is not None
    return error


async def test_the_totals_are_the_last_event():
    """Everything that was released is counted in them."""
    *events, totals = await collect(stream_of(), sent(seconds(2.0)))
    released = [e for e in events if isinstance(e, WordsReleased)]
    assert isinstance(totals, SessionTotals)
    assert totals.item_count == sum(len(event.items) for event in released) > 0


async def test_a_session_that_grows_too_long_is_ended():
    """The message names how long it is and how long it may be."""
    failure = await failure_of(stream_of(max_session_ms=1000), sent(seconds(1.0), bytes(2)))
    assert isinstance(failure, SessionTooLongError)
    assert failure.message == "the session has 8001 samples; allowed: 8000"
    *_, totals = await collect(stream_of(max_session_ms=1000), sent(seconds(1.0)))
    assert isinstance(totals, SessionTotals)


async def test_a_session_that_grew_too_long_may_be_resumed_for_as_long_again():
    """Else a client that goes on as it is advised would be ended at once, again and again."""

    def resumed() -> TranslationStream:
        start = SessionSnapshot(OPTIONS, UtteranceState(1, 8000, 8000))
        settings = PolicySettings(max_session_ms=1000)
        return TranslationStream(
            OPTIONS, settings, ScriptedEncoder(), ScriptedDecoder(), resumed=start
        )

    *_, totals = await collect(resumed(), sent(seconds(1.0)))
    assert isinstance(totals, SessionTotals)
    failure = await failure_of(resumed(), sent(seconds(1.0), bytes(2)))
    assert failure.message == "the session has 16001 samples; allowed: 16000"


async def test_broken_audio_ends_the_session_behind_its_words():
    """What was released before the mistake is not lost."""
    released = asyncio.Event()

    async def audio() -> AsyncIterator[bytes]:
        yield seconds(2.0)
        await released.wait()
        yield b"x"

    words = []
    with pytest.raises(ExceptionGroup) as caught:
        async for event in stream_of().events(audio()):
            if isinstance(event, WordsReleased):
                words.append(event)
                released.set()
    assert words
    assert isinstance(find_error(caught.value), InvalidAudioError)


async def test_a_failing_encoder_ends_the_session():
    """Its error reaches the client as it is."""

    class FailingEncoder(ScriptedEncoder):
        async def encode(self, audio: bytes, end_sample: int | None = None):
            raise NotReadyError("gone")

    failure = await failure_of(stream_of(FailingEncoder()), sent(seconds(2.0)))
    assert failure.message == "gone"


async def test_a_leaving_replica_says_so_and_goes_on():
    """The farewell is an event like others; the audio is worked on to its end."""
    stream = stream_of()
    await stream.leave(10.0)
    events = await collect(stream, sent(seconds(2.0)))
    assert events[0] == ReplicaLeaving(10.0)
    assert isinstance(events[-1], SessionTotals)


async def test_a_session_that_is_ended_raises_the_reason():
    """Though its client is silent and would be waited for."""
    stream = stream_of()
    await stream.end(NotReadyError("stopping"))
    assert (await failure_of(stream, sent(then=asyncio.Event()))).message == "stopping"


async def test_nothing_runs_on_when_nobody_listens():
    """Closing the events ends the reading and the work, and is no error."""
    stream = stream_of()
    async with aclosing(stream.events(sent(seconds(2.0), then=asyncio.Event()))) as events:
        await anext(events)
    assert asyncio.all_tasks() == {asyncio.current_task()}


LEAVING = ReplicaLeaving(1.0)


async def everything(outbox: Outbox) -> list[Event]:
    return [event async for event in outbox.events()]


async def test_nothing_comes_after_the_last_event():
    """Neither a farewell nor an error."""
    outbox, totals = Outbox(), SessionTotals()
    await outbox.put(totals)
    await outbox.announce(LEAVING)
    await outbox.close(IdleError("too late"))
    assert await everything(outbox) == [totals]


async def test_a_farewell_does_not_wait_for_a_slow_client():
    """Everything else does."""
    outbox = Outbox()
    for index in range(CAPACITY):
        await outbox.put(ReplicaLeaving(float(index)))
    await outbox.announce(LEAVING)
    waiting = asyncio.ensure_future(outbox.put(SessionTotals()))
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
    await outbox.put(SessionTotals())
    events = outbox.events()
    assert [await anext(events) for _ in range(CAPACITY)] == [
        ReplicaLeaving(float(index)) for index in range(CAPACITY)
    ]
    with pytest.raises(IdleError):
        await anext(events)
