"""What a session tells its observer of every segment."""

from __future__ import annotations

import pytest

from earvoice.policy.backend import Encoded
from earvoice.policy.event import SegmentWorked, SessionTotals, WordsReleased
from earvoice.policy.observer import SegmentObserver
from earvoice.policy.segment_record import SegmentRecord
from earvoice.policy.stream_options import Endpointing
from earvoice.policy.words import CommitUnit
from tests.unit.policy.running import OPTIONS, items_of, run_session, seconds, with_options
from tests.unit.policy.scripted import ScriptedEncoder


class KeepingObserver(SegmentObserver):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.begun: list[SegmentRecord] = []
        self.ended: list[tuple[SegmentRecord, SegmentWorked]] = []

    def begin(self, record: SegmentRecord) -> None:
        assert len(self.begun) == len(self.ended), "the segment before has not ended"
        assert record.encoded_s is None
        self.begun.append(record)

    def end(self, record: SegmentRecord, worked: SegmentWorked) -> None:
        assert record is self.begun[-1]
        self.ended.append((record, worked))


WAYS = {
    "true": OPTIONS,
    "live": with_options(merges_segments=True),
    "held": with_options(merges_segments=True, commit_unit=CommitUnit.TOKEN),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_segment_begins_and_ends_once(way: str):
    """With the event that the client gets, and all its items."""
    observer = KeepingObserver()
    events = run_session([seconds(0.5)] * 8, WAYS[way], observer=observer)
    worked = [event for event in events if isinstance(event, SegmentWorked)]
    assert [told for _, told in observer.ended] == worked
    assert [item for record, _ in observer.ended for item in record.items] == items_of(events)
    assert [record.endpoint is not None for record in observer.begun][-1]


@pytest.mark.parametrize("way", WAYS)
def test_moments_come_in_the_order_of_the_work(way: str):
    """Those that were reached; the decoder may still be computing when words are out."""
    observer = KeepingObserver()
    run_session([seconds(0.5)] * 8, WAYS[way], observer=observer)
    decoded = 0
    for record in observer.begun:
        reached = [
            record.started_s,
            record.encoding_s,
            record.encoded_s,
            record.decoding_s,
            record.deciding_s,
            record.committed_s,
            record.released_s,
            record.decoded_s,
        ]
        moments = [moment for moment in reached if moment is not None]
        assert moments == sorted(moments)
        decoded += record.decoded_s is not None
    assert decoded


def test_a_held_words_stages_are_those_of_the_segment_that_committed_it():
    """The observer can tell for every item which segment that was."""
    observer = KeepingObserver()
    run_session([seconds(0.5)] * 8, WAYS["held"], observer=observer)
    stages = {record.segment.index: record.stages for record in observer.begun}
    items = [item for record in observer.begun for item in record.items]
    assert items
    for item in items:
        committed = stages[item.commit_segment]
        assert committed is not None
        assert item.stages.decoder_compute_ms == committed.decoder_compute_ms
        assert item.stages.total_ms == pytest.approx(committed.total_ms + item.stages.word_hold_ms)


class LosingEncoder(ScriptedEncoder):
    """Loses its replica in the second segment."""

    async def encode(self, audio: bytes) -> Encoded:
        encoded = await super().encode(audio)
        if len(self.calls) == 2:
            self.replay_count += 1
        return encoded


def test_a_replay_is_told_of_the_segment_that_it_happened_in():
    """And the totals tell how many there were."""
    observer = KeepingObserver()
    events = run_session([seconds(0.5)] * 8, encoder=LosingEncoder(), observer=observer)
    assert [record.replay_count for record in observer.begun] == [0, 1, 0, 0, 0, 0]
    assert isinstance(events[-1], SessionTotals)
    assert events[-1].replay_count == 1
    told = [event.snapshot for event in events if isinstance(event, WordsReleased)]
    assert [snapshot.totals.replay_count for snapshot in told if snapshot][:2] == [0, 1]


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
    assert totals.replay_count == encoder.replay_count > 1
