"""Segments end on the grid, whatever the pace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from earvoice.policy.segment_grid import Segment, SegmentGrid

GRID = SegmentGrid(8000, 800, 0, limit_samples=None)


def due(grid: SegmentGrid, received: int, last: int = 0, *, ended=False, merge=False):
    return grid.next_segment(0, last, received, ended=ended, merge=merge)


def test_a_segment_is_due_when_its_last_sample_has_come():
    """One sample less and nothing is due."""
    assert due(GRID, 6399) is None
    assert due(GRID, 6400) == Segment(1, 6400, 6400)


def test_the_first_segment_is_longer_by_the_initial_wait():
    """Later boundaries move with it."""
    grid = SegmentGrid(8000, 800, 2000, limit_samples=None)
    assert [grid.boundary(index) for index in (1, 2)] == [22_400, 28_800]


def test_merge_goes_to_the_newest_boundary():
    """Two boundaries are skipped, and the grid end stays that of the first."""
    assert due(GRID, 20_000, merge=True) == Segment(3, 19_200, 6400, merged_count=2)
    assert due(GRID, 20_000, merge=False) == Segment(1, 6400, 6400)


def test_a_full_segment_is_never_final():
    """Audio that ends on a boundary gives a full segment, then a final one without samples."""
    assert due(GRID, 6400, ended=True) == Segment(1, 6400, 6400)
    assert due(GRID, 6400, last=1, ended=True) == Segment(2, 6400, 6400, final=True)


def test_merge_does_not_pass_the_longest_utterance():
    """However late the machine, the utterance is cut in time."""
    grid = SegmentGrid(8000, 800, 0, limit_samples=16_000)
    segment = due(grid, 80_000, merge=True)
    assert segment is not None
    assert (segment.index, grid.is_last(segment.index)) == (2, True)


@given(
    rate=st.sampled_from([8000, 11_025, 16_000, 44_100, 48_000]),
    segment_ms=st.integers(200, 3000),
    wait_ms=st.integers(0, 3000),
    received=st.integers(0, 2_000_000),
)
def test_boundaries_are_found_exactly(rate, segment_ms, wait_ms, received):
    """The newest boundary is within the audio and the next one is not, also when rounded."""
    grid = SegmentGrid(rate, segment_ms, wait_ms, limit_samples=None)
    segment = due(grid, received, merge=True)
    index = segment.index if segment else 0
    assert grid.boundary(index) <= received < grid.boundary(index + 1)
