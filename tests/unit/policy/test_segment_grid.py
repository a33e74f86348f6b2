"""Segments end on the grid, whatever the pace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from earvoice.policy.segment_grid import Segment, SegmentGrid

GRID = SegmentGrid(8000, 800, 0)

RATES = st.sampled_from([8000, 11_025, 16_000, 44_100, 48_000])


def due(grid: SegmentGrid, received: int, last: int = 0, *, ended=False, merge=False, limit=None):
    return grid.next_segment(last, received, ended=ended, merge=merge, limit_sample=limit)


def test_a_segment_is_due_when_its_last_sample_has_come():
    """One sample less and nothing is due."""
    assert due(GRID, 6399) is None
    assert due(GRID, 6400) == Segment(1, 6400, 6400)


def test_the_first_segment_is_longer_by_the_initial_wait():
    """Later boundaries move with it."""
    grid = SegmentGrid(8000, 800, 2000)
    assert [grid.boundary(index) for index in (1, 2)] == [22_400, 28_800]


def test_an_utterance_s_grid_counts_from_its_start():
    """Positions stay those of the session."""
    grid = SegmentGrid(8000, 800, 0, anchor_sample=100)
    assert due(grid, 6499) is None
    assert due(grid, 6500) == Segment(1, 6500, 6500)


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
    segment = due(GRID, 80_000, merge=True, limit=16_000)
    assert segment is not None
    assert (segment.index, segment.end_sample) == (2, 12_800)
    assert GRID.is_last(2, 16_000)
    assert not GRID.is_last(1, 16_000)


def test_no_segment_passes_the_limit():
    """A longer segment, chosen in mid-stream, is cut short there."""
    assert due(GRID, 16_000, last=2, limit=16_000) == Segment(3, 16_000, 16_000)


def test_another_duration_goes_on_from_the_boundary_decided_last():
    """After two segments of 800 ms come those of 500 ms."""
    moved = GRID.moved(500, 0, last_index=2, past_sample=12_800)
    assert [moved.boundary(index) for index in (2, 3, 4)] == [12_800, 16_800, 20_800]


def test_boundaries_before_the_change_are_left_out():
    """The change came 700 ms after the last boundary: the first new segment ends after 1000 ms."""
    moved = GRID.moved(500, 0, last_index=2, past_sample=12_800 + 5600)
    assert [moved.boundary(index) for index in (2, 3, 4)] == [12_800, 20_800, 24_800]


@given(
    rate=RATES,
    segment_ms=st.integers(10, 3000),
    wait_ms=st.integers(0, 3000),
    start=st.integers(0, 100_000),
    received=st.integers(0, 2_000_000),
)
def test_boundaries_are_found_exactly(rate, segment_ms, wait_ms, start, received):
    """The newest boundary is within the audio and the next one is not, also when rounded."""
    grid = SegmentGrid(rate, segment_ms, wait_ms, start)
    segment = due(grid, start + received, merge=True)
    index = segment.index if segment else 0
    assert grid.boundary(index) <= start + received < grid.boundary(index + 1)


@given(
    rate=RATES,
    segments_ms=st.tuples(st.integers(10, 3000), st.integers(10, 3000)),
    last_index=st.integers(0, 20),
    share=st.floats(0, 0.999),
)
def test_a_moved_grid_begins_behind_the_change(rate, segments_ms, last_index, share):
    """Its first boundary lies past the change, by one of its segments at most."""
    old_ms, new_ms = segments_ms
    grid = SegmentGrid(rate, old_ms, 0)
    begin, end = grid.boundary(last_index), grid.boundary(last_index + 1)
    change = begin + int((end - begin) * share)
    moved = grid.moved(new_ms, 0, last_index, change)
    first = moved.boundary(last_index + 1)
    assert moved.boundary(last_index) == begin
    assert change < first <= change + new_ms * rate // 1000 + 1
