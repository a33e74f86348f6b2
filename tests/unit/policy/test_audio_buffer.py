"""The audio of a session: whole frames, bounded, and never a reason to wait for ever."""

from __future__ import annotations

import asyncio

import pytest

from earvoice.policy.audio_buffer import MESSAGE_LIMIT_BYTES, ArrivalClock, AudioBuffer
from earvoice.runtime.audio_format import AudioFormat
from earvoice.runtime.errors import InvalidAudioError

FRAME_BYTES = 2
LIMIT_SAMPLES = 100


def frames(count: int, value: int = 0) -> bytes:
    return value.to_bytes(FRAME_BYTES, "little") * count


@pytest.fixture
def audio() -> AudioBuffer:
    return AudioBuffer(AudioFormat("linear16", 8000, 1), LIMIT_SAMPLES)


async def has_ended(task: asyncio.Task[None]) -> bool:
    """Let everybody run who can, and look."""
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"abc", "whole frames of 2 bytes"), (bytes(MESSAGE_LIMIT_BYTES + 2), "more than 1048576")],
)
async def test_a_message_of_no_use_is_refused(audio: AudioBuffer, data: bytes, message: str):
    """Half a frame would shift all that follow; a message has its limit."""
    with pytest.raises(InvalidAudioError, match=message):
        await audio.append(data, 0.0)
    assert audio.received_samples == 0


async def test_too_much_audio_waits_until_some_was_worked_on(audio: AudioBuffer):
    """The message that passes the limit gets in, the one after waits."""
    await audio.append(frames(LIMIT_SAMPLES), 0.0)
    waiting = asyncio.create_task(audio.append(frames(10), 1.0))
    assert not await has_ended(waiting)
    await audio.mark_worked(10)
    assert await has_ended(waiting)
    assert audio.received_samples == LIMIT_SAMPLES + 10


async def test_audio_that_is_waited_for_gets_in_past_the_limit(audio: AudioBuffer):
    """A segment longer than the limit is worked on all the same, and no message more."""
    segment = asyncio.create_task(audio.wait_for(3 * LIMIT_SAMPLES))
    for _ in range(3):
        assert not await has_ended(segment)
        await audio.append(frames(LIMIT_SAMPLES), 0.0)
    assert await has_ended(segment)
    further = asyncio.create_task(audio.append(frames(1), 0.0))
    assert not await has_ended(further)
    await audio.mark_worked(3 * LIMIT_SAMPLES)
    assert await has_ended(further)


async def test_the_end_wakes_who_waits_for_more(audio: AudioBuffer):
    """What was not sent will not come."""
    segment = asyncio.create_task(audio.wait_for(10))
    assert not await has_ended(segment)
    await audio.end()
    assert await has_ended(segment)


async def test_positions_count_from_the_session_s_first_frame(audio: AudioBuffer):
    """Also after the beginning has been forgotten; what is forgotten cannot be read."""
    for index in range(4):
        await audio.append(frames(10, value=index), float(index))
    audio.release_before(15)
    assert audio.read(15, 25) == frames(5, value=1) + frames(5, value=2)
    with pytest.raises(IndexError, match=r"\[14, 20\)"):
        audio.read(14, 20)
    with pytest.raises(IndexError, match=r"\[30, 41\)"):
        audio.read(30, 41)


async def test_each_frame_has_the_arrival_of_its_message(audio: AudioBuffer):
    """Of messages forgotten, the time of the first that is held stands for all."""
    for index in range(4):
        await audio.append(frames(10), float(index))
    assert [audio.arrival_s(sample) for sample in (1, 10, 11, 40)] == [0.0, 0.0, 1.0, 3.0]
    audio.release_before(20)
    assert [audio.arrival_s(sample) for sample in (1, 20, 21)] == [1.0, 1.0, 2.0]


async def test_tiny_messages_share_their_arrival(audio: AudioBuffer):
    """A flood of single frames is remembered by the eight, each with the last one's time."""
    for index in range(20):
        await audio.append(frames(1), float(index))
    await audio.append(frames(10), 20.0)
    arrivals = [audio.arrival_s(sample) for sample in (1, 8, 9, 16, 17, 20, 21, 30)]
    assert arrivals == [7.0, 7.0, 15.0, 15.0, 19.0, 19.0, 20.0, 20.0]


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
