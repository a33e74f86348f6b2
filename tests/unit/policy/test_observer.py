"""What a session tells its observer of every segment."""

from __future__ import annotations

import pytest

from earvoice.policy.event import SegmentWorked
from earvoice.policy.observer import SegmentObserver
from earvoice.policy.segment_record import SegmentRecord
from earvoice.policy.words import CommitUnit
from tests.unit.policy.running import OPTIONS, items_of, run_session, seconds, with_options


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
