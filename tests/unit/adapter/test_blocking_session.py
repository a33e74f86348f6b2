"""Which segments are due for the audio sent."""

from __future__ import annotations

from earvoice.adapter.blocking_session import SegmentGrid
from earvoice.client.event import EndOfUtterance, SegmentDone


def done(segment: int, *, ends: bool = False) -> SegmentDone:
    return SegmentDone(0, segment, 0.0, 0.0, 0.0, 0, 0, ends_utterance=ends)


def test_a_segment_is_due_when_its_boundary_has_been_sent():
    """And no more until the next boundary."""
    grid = SegmentGrid(16_000, 800, 0)
    assert not grid.has_due(12_799)
    assert grid.has_due(12_800)
    grid.note_segment(done(1))
    assert not grid.has_due(25_599)
    assert grid.has_due(25_600)


def test_the_initial_wait_moves_every_boundary_of_an_utterance():
    """The first segment is longer, the others are as long as ever."""
    grid = SegmentGrid(16_000, 500, 2000)
    assert not grid.has_due(39_999)
    assert grid.has_due(40_000)
    grid.note_segment(done(1))
    assert not grid.has_due(47_999)


def test_a_boundary_between_samples_is_rounded_down():
    """As the service does."""
    assert SegmentGrid(11_025, 333, 0).has_due(3671)
    assert not SegmentGrid(11_025, 333, 0).has_due(3670)


def test_an_utterance_that_ends_is_waited_for_and_moves_the_grid():
    """The next one begins earlier than the audio sent, so a segment may be due at once."""
    grid = SegmentGrid(16_000, 200, 0)
    grid.note_segment(done(5, ends=True))
    assert grid.has_due(0)
    grid.note_utterance(EndOfUtterance(0, 0.0, 700.0, "pause", ""))
    assert grid.has_due(16_000)
    grid.note_segment(done(1))
    assert not grid.has_due(16_000)
