"""What has been sent is there to be sent again, in whole frames, and no more than that."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.client.audio import send_fast
from earvoice.client.audio_log import AudioLog, cut_messages
from earvoice.client.errors import AudioSourceError
from earvoice.client.options import TranslationUpdate

FRAME_BYTES = 2
MANY_BYTES = 10**6


def frames(first: int, count: int) -> bytes:
    """Frames that tell their position."""
    return b"".join(position.to_bytes(2, "big") for position in range(first, first + count))


async def read_all(log: AudioLog, start_sample: int) -> list[bytes | TranslationUpdate]:
    return [content async for content in log.read(start_sample)]


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    update_places=st.sets(st.integers(0, 11)),
    data=st.data(),
)
def test_it_can_be_read_again_from_any_place_that_is_kept(sizes, update_places, data):
    """Audio to the sample; an update stays between the samples that it lay between."""
    ends = [0, *itertools.accumulate(sizes)]
    acknowledged = data.draw(st.integers(0, ends[-1]))
    start = data.draw(st.integers(acknowledged, ends[-1]))

    async def run():
        log = AudioLog(FRAME_BYTES, MANY_BYTES)
        for index, size in enumerate(sizes):
            if index in update_places:
                await log.add(TranslationUpdate(segment_ms=ends[index]))
            await log.add(frames(ends[index], size))
        await log.end()
        await log.acknowledge(acknowledged)
        assert log.start_sample <= acknowledged
        return await read_all(log, start)

    position = start
    updates = []
    for content in asyncio.run(run()):
        if isinstance(content, TranslationUpdate):
            assert content.segment_ms == position
            updates.append(position)
        else:
            assert content == frames(position, len(content) // FRAME_BYTES)
            position += len(content) // FRAME_BYTES
    assert position == ends[-1]
    assert updates == [
        ends[i] for i in sorted(update_places) if i < len(sizes) and ends[i] >= start
    ]


async def test_the_source_keeps_pace_with_who_reads():
    """Nothing is taken ahead of what has been sent."""
    log = AudioLog(FRAME_BYTES, MANY_BYTES)
    reading = log.read(0)
    first = asyncio.ensure_future(anext(reading))
    await asyncio.sleep(0)
    adding = asyncio.create_task(log.add(b"1234"))
    assert await first == b"1234"
    for _ in range(5):
        await asyncio.sleep(0)
    assert not adding.done()
    second = asyncio.ensure_future(anext(reading))
    await adding
    second.cancel()


async def test_while_nobody_reads_audio_is_kept_up_to_a_limit():
    """A microphone goes on for as long as there is room."""
    log = AudioLog(FRAME_BYTES, 8)
    await log.add(frames(0, 2))
    await log.add(frames(2, 1))
    adding = asyncio.create_task(log.add(frames(3, 2)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not adding.done()
    await log.acknowledge(3)
    await adding


async def test_past_the_limit_the_oldest_that_was_sent_is_given_up():
    """A server that acknowledges nothing costs no memory without end."""
    log = AudioLog(FRAME_BYTES, 8)
    reading = log.read(0)
    seen = b""
    for index in range(10):
        adding = asyncio.create_task(log.add(frames(index * 2, 2)))
        seen += await anext(reading)
        await asyncio.sleep(0)
        if index < 9:
            # The next read lets the source go on.
            adding.cancel()
    assert seen == frames(0, 20)
    assert log.start_sample >= 14


async def cut(chunks, **limit) -> list[bytes | TranslationUpdate]:
    return [message async for message in cut_messages(send_fast(chunks), 4, **limit)]


@given(st.lists(st.binary(max_size=23)), st.integers(0, 3))
def test_cutting_keeps_every_whole_frame(chunks, padding):
    """However bytes come, the messages join to them, hold whole frames and are short enough."""
    joined = b"".join(chunks)
    rest = b"0" * (-len(joined) % 4)
    messages = asyncio.run(cut([*chunks, rest], limit_bytes=8 + padding))
    assert b"".join(messages) == joined + rest
    assert all(message and len(message) % 4 == 0 and len(message) <= 8 for message in messages)


async def test_an_unfinished_frame_is_told_at_the_end():
    """Audio that ends inside a frame was cut or declared wrongly; what is whole comes first."""
    messages = cut_messages(send_fast([b"12345"]), 4)
    assert await anext(messages) == b"1234"
    with pytest.raises(AudioSourceError, match="ends inside a frame: 1 of 4 bytes"):
        await anext(messages)


async def test_updates_pass_between_frames():
    """An update goes before the frame that it came inside of."""
    update = TranslationUpdate(segment_ms=400)
    assert await cut([b"12345", update, b"678"]) == [b"1234", update, b"5678"]
