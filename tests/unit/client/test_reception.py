"""A call's time, and a server that owes an answer and does not even tell its health."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from earvoice.client.event import SegmentDone, Started
from earvoice.client.model_description import ModelDescription
from earvoice.client.options import TranslationOptions
from earvoice.client.reception import LONGEST_SILENCE_S, ReceptionClock, StallWatch
from earvoice.runtime.audio_format import AudioFormat


def read_after(*, paced):
    """Return the reading 2 s after the first of two messages of 100 ms was sent."""
    now_s = 50.0
    clock = ReceptionClock(paced=paced, now_s=lambda: now_s)
    clock.note_sending(0, 100)
    now_s = 51.0
    clock.note_sending(100, 200)
    now_s = 52.0
    return clock.read_ms()


def test_paced_audio_counts_from_when_the_first_sample_existed():
    """The first chunk was sent when its last sample existed."""
    assert read_after(paced=True) == pytest.approx(2100)


def test_a_recording_counts_from_the_first_sending():
    """At full speed there is no moment when the first sample existed."""
    assert read_after(paced=False) == pytest.approx(2000)


def test_nothing_sent_reads_zero():
    """A server that talks before any audio is no reason to fail."""
    assert ReceptionClock(paced=True, now_s=lambda: 5.0).read_ms() == 0.0


def test_audio_that_had_to_wait_does_not_make_the_clock_late():
    """What a session sends first, at its start or after a resumption, existed long before."""
    now_s = 50.0
    clock = ReceptionClock(paced=True, now_s=lambda: now_s)
    for sent_ms in range(2000, 5000, 100):
        clock.note_sending(sent_ms, sent_ms + 100)
    now_s = 52.0
    assert clock.read_ms() == pytest.approx(7000)
    clock.note_sending(5000, 5100)
    assert clock.read_ms() == pytest.approx(7000)


@dataclass
class Surroundings:
    """A clock, and a server that may be healthy."""

    now_s: float = 100.0
    healthy: bool = False
    asked_count: int = 0

    async def answers(self) -> bool:
        self.asked_count += 1
        return self.healthy


def started(**choices) -> Started:
    options = TranslationOptions(("de",), AudioFormat("mulaw", 8000), segment_ms=800, **choices)
    model = ModelDescription.__new__(ModelDescription)
    return Started("s", model, options, "edatt", "1", "live", 0)


def done(end_ms: float) -> SegmentDone:
    return SegmentDone(0, 1, end_ms, 0.0, 0.0, 0, 0)


@pytest.fixture
def around() -> Surroundings:
    return Surroundings()


@pytest.fixture
def watch(around: Surroundings) -> StallWatch:
    watch = StallWatch(5.0, lambda: around.now_s, around.answers)
    watch.note_event(started())
    return watch


async def test_a_session_that_does_not_start_is_stalled(around: Surroundings):
    """The first answer is due from the beginning."""
    watch = StallWatch(5.0, lambda: around.now_s, around.answers)
    assert not await watch.is_stalled()
    around.now_s += 5
    assert await watch.is_stalled()


async def test_silence_is_no_stall_while_nothing_is_owed(around: Surroundings, watch: StallWatch):
    """Half a segment was sent: who speaks no further gets no answer."""
    watch.note_sent(700)
    around.now_s += 1000
    assert not await watch.is_stalled()
    assert not around.asked_count


async def test_an_answer_that_is_late_is_missed(around: Surroundings, watch: StallWatch):
    """From when the segment was sent, not from when the last answer came."""
    around.now_s += 100
    watch.note_sent(800)
    around.now_s += 4.9
    assert not await watch.is_stalled()
    around.now_s += 0.1
    assert await watch.is_stalled()


async def test_each_answer_starts_the_wait_anew(around: Surroundings, watch: StallWatch):
    """A server that works off what has come is not left."""
    watch.note_sent(float("inf"))
    for end_ms in range(800, 80_000, 800):
        around.now_s += 4
        assert not await watch.is_stalled()
        watch.note_event(done(end_ms))


async def test_a_slow_server_is_waited_for(around: Surroundings, watch: StallWatch):
    """It tells its health; but not for ever, for somebody else may answer for it."""
    around.healthy = True
    watch.note_sent(800)
    for _ in range(int(LONGEST_SILENCE_S) - 1):
        around.now_s += 1
        assert not await watch.is_stalled()
    around.now_s += 2
    assert await watch.is_stalled()


async def test_longer_segments_are_waited_for(around: Surroundings, watch: StallWatch):
    """An update may ask for them."""
    watch.note_longer_segments(3000)
    watch.note_sent(2000)
    around.now_s += 100
    assert not await watch.is_stalled()
