"""The stages of a word add up on either clock, and an observer is told of every segment."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.policy.backend import Encoded
from earvoice.policy.endpoints import Segment
from earvoice.policy.event import SegmentWorked, SessionTotals, WordsReleased
from earvoice.policy.session import SegmentObserver
from earvoice.policy.stream_options import Endpointing
from earvoice.policy.timeline import HopTimings, SegmentTimeline
from earvoice.policy.words import StageTimings
from tests.fakes import ScriptedEncoder
from tests.unit.policy.running import OPTIONS, items_of, run_session, seconds, with_options

MS = st.floats(0, 5000)
SEGMENT = Segment(1, 6400, 6400)


def parts_sum(stages: StageTimings) -> float:
    return sum(value for name, value in asdict(stages).items() if name != "total_ms")


def hop(compute: float, queue: float, network: float) -> HopTimings:
    return HopTimings(compute + queue + network, compute + queue, compute)


def true_timeline(arrival_ms: float, previous_finished_ms: float) -> SegmentTimeline:
    return SegmentTimeline(
        segment=SEGMENT,
        grid_arrival_s=0.0,
        started_s=0.0,
        arrival_ms=arrival_ms,
        previous_finished_ms=previous_finished_ms,
    )


@given(st.lists(MS, min_size=9, max_size=9))
def test_live_stages_add_up(values):
    """Merge wait, waiting, two hops and our own work are all there is."""
    merge, wait, own, *hops = values
    arrival = 10.0 + merge / 1000
    started = arrival + wait / 1000
    timeline = SegmentTimeline(
        segment=SEGMENT, origin_s=0.0, grid_arrival_s=10.0, arrival_s=arrival, started_s=started
    )
    timeline.encoder = hop(*hops[:3])
    timeline.decoder = hop(*hops[3:])
    now = started + (sum(hops) + own) / 1000
    committed = timeline.commit(now)
    assert parts_sum(committed.stages) == pytest.approx(committed.stages.total_ms, abs=1e-6)
    assert committed.stages.total_ms == pytest.approx((now - 10.0) * 1000)
    assert committed.stages.decision_ms == pytest.approx(own, abs=1e-6)
    assert committed.elapsed_ms == pytest.approx(now * 1000)


@given(st.lists(MS, min_size=4, max_size=4))
def test_true_stages_add_up(values):
    """Computation only, after the segment before is finished."""
    encode, decode, arrival, finished = values
    timeline = true_timeline(arrival, finished)
    timeline.encoder = hop(encode, 7, 7)
    timeline.decoder = hop(decode, 9, 9)
    committed = timeline.commit(0.0)
    assert parts_sum(committed.stages) == pytest.approx(committed.stages.total_ms)
    assert committed.elapsed_ms == pytest.approx(max(arrival, finished) + encode + decode)


def test_the_true_clock_shows_the_backlog():
    """60 s in 1 s segments, 1.3 s of computation each: the last word is 19 s late."""
    finished = 0.0
    for second in range(1, 61):
        timeline = true_timeline(second * 1000.0, finished)
        timeline.encoder = hop(1300, 0, 0)
        finished = timeline.finished_ms
    assert finished - 60_000 == pytest.approx(19_000)


class KeepingObserver(SegmentObserver):
    def __init__(self) -> None:
        self.begun: list[SegmentTimeline] = []
        self.ended: list[tuple[SegmentTimeline, SegmentWorked]] = []

    def begin(self, timeline: SegmentTimeline) -> None:
        assert len(self.begun) == len(self.ended), "the segment before has not ended"
        assert timeline.encoded_s is None
        self.begun.append(timeline)

    def end(self, timeline: SegmentTimeline, worked: SegmentWorked) -> None:
        assert timeline is self.begun[-1]
        self.ended.append((timeline, worked))


WAYS = {
    "true": OPTIONS,
    "live": with_options(merges_segments=True),
    "held": with_options(merges_segments=True, commit_unit="token"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_segment_begins_and_ends_once(way: str):
    """With the event that the client gets, and all its items."""
    observer = KeepingObserver()
    events = run_session([seconds(0.5)] * 8, WAYS[way], observer=observer)
    worked = [event for event in events if isinstance(event, SegmentWorked)]
    assert [told for _, told in observer.ended] == worked
    assert [item for timeline, _ in observer.ended for item in timeline.words] == items_of(events)
    assert [timeline.endpoint is not None for timeline in observer.begun][-1]


@pytest.mark.parametrize("way", WAYS)
def test_moments_come_in_the_order_of_the_work(way: str):
    """Those that were reached; the decoder may still be computing when words are out."""
    observer = KeepingObserver()
    run_session([seconds(0.5)] * 8, WAYS[way], observer=observer)
    decoded = 0
    for timeline in observer.begun:
        reached = [
            timeline.started_s,
            timeline.encoding_s,
            timeline.encoded_s,
            timeline.decoding_s,
            timeline.deciding_s,
            timeline.committed_s,
            timeline.released_s,
            timeline.decoded_s,
        ]
        moments = [moment for moment in reached if moment is not None]
        assert moments == sorted(moments)
        decoded += timeline.decoded_s is not None
    assert decoded


def test_a_held_words_stages_are_those_of_the_segment_that_committed_it():
    """The observer can tell for every item which segment that was."""
    observer = KeepingObserver()
    run_session([seconds(0.5)] * 8, WAYS["held"], observer=observer)
    stages = {timeline.segment.index: timeline.stages for timeline in observer.begun}
    items = [item for timeline in observer.begun for item in timeline.words]
    assert items
    for item in items:
        committed = stages[item.committed.segment]
        assert committed is not None
        assert item.stages.decoder_compute_ms == committed.decoder_compute_ms
        assert item.stages.total_ms == pytest.approx(committed.total_ms + item.stages.word_hold_ms)


class LosingEncoder(ScriptedEncoder):
    """Loses its replica in the second segment."""

    async def encode(self, audio: bytes, end_sample: int | None = None) -> Encoded:
        encoded = await super().encode(audio, end_sample)
        if len(self.calls) == 2:
            self.replay_count += 1
        return encoded


def test_a_replay_is_told_of_the_segment_that_it_happened_in():
    """And the totals tell how many there were."""
    observer = KeepingObserver()
    events = run_session([seconds(0.5)] * 8, encoder=LosingEncoder(), observer=observer)
    assert [timeline.replay_count for timeline in observer.begun] == [0, 1, 0, 0, 0, 0]
    assert isinstance(events[-1], SessionTotals)
    assert events[-1].replays == 1
    told = [event.snapshot for event in events if isinstance(event, WordsReleased)]
    assert [snapshot.totals.replays for snapshot in told if snapshot][:2] == [0, 1]


class LosingAtResetEncoder(ScriptedEncoder):
    """Loses its replica whenever an utterance begins."""

    async def reset(self, utterance: int, start_sample: int) -> None:
        await super().reset(utterance, start_sample)
        self.replay_count += 1


def test_a_replay_between_two_utterances_is_in_the_totals():
    """It belongs to no segment."""
    encoder = LosingAtResetEncoder()
    options = with_options(endpointing=Endpointing(max_utterance_ms=5000))
    *_, totals = run_session([seconds(0.5)] * 30, options, encoder=encoder)
    assert isinstance(totals, SessionTotals)
    assert totals.replays == encoder.replay_count > 1
