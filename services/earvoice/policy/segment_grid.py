"""Where segments end: multiples of the segment duration since the utterance's start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Segment:
    """A piece of an utterance that is decided at once.

    Attributes:
        index: its boundary's number on the grid, from 1.
        end_sample: where it ends, counted from the session's first sample.
        grid_end_sample: where it would end had nothing been merged into it.
        merged_count: grid segments merged into it beyond the first.
        final: whether the audio ends with it. A full segment is never final.
    """

    index: int
    end_sample: int
    grid_end_sample: int
    merged_count: int = 0
    final: bool = False


class SegmentGrid:
    """The boundaries of an utterance's segments, counted from an anchor on.

    Args:
        sample_rate_hertz: frames per second.
        segment_ms: duration of a segment, more than 0.
        wait_ms: how much longer the first one is, 0 or more.
        anchor_sample: where the first one begins, counted from the session's first sample.
        anchor_index: the number of the boundary there: 0 at an utterance's start.

    All but the rate are attributes, too.
    """

    def __init__(
        self,
        sample_rate_hertz: int,
        segment_ms: int,
        wait_ms: int,
        anchor_sample: int = 0,
        anchor_index: int = 0,
    ) -> None:
        self._rate_hertz = sample_rate_hertz
        self.segment_ms = segment_ms
        self.wait_ms = wait_ms
        self.anchor_sample = anchor_sample
        self.anchor_index = anchor_index

    def boundary(self, index: int) -> int:
        """Return where segment ``index`` ends; the anchor for all that end before it."""
        if index <= self.anchor_index:
            return self.anchor_sample
        total_ms = self.wait_ms + (index - self.anchor_index) * self.segment_ms
        return self.anchor_sample + total_ms * self._rate_hertz // 1000

    def moved(
        self, segment_ms: int, wait_ms: int, last_index: int, past_sample: int
    ) -> SegmentGrid:
        """Return the grid that goes on from a boundary in steps of another duration.

        Args:
            segment_ms: the new duration.
            wait_ms: how much longer the first segment is.
            last_index: the boundary decided last; the new grid begins there.
            past_sample: boundaries of the new grid that are not behind this are left out.
        """
        anchor_sample = self.boundary(last_index)
        first = SegmentGrid(self._rate_hertz, segment_ms, wait_ms, anchor_sample, last_index)
        skipped = first.index_at(past_sample) - last_index
        return SegmentGrid(
            self._rate_hertz, segment_ms, wait_ms + skipped * segment_ms, anchor_sample, last_index
        )

    def next_end(self, last_index: int, limit_sample: int | None) -> int:
        """Return where the segment after this one ends: at its boundary, or at the limit."""
        boundary = self.boundary(last_index + 1)
        return boundary if limit_sample is None else min(boundary, limit_sample)

    def is_last(self, index: int, limit_sample: int | None) -> bool:
        """Say whether the segment after this one would end behind the limit."""
        return limit_sample is not None and self.boundary(index + 1) > limit_sample

    def next_segment(
        self,
        last_index: int,
        received_samples: int,
        *,
        ended: bool,
        merge: bool,
        limit_sample: int | None = None,
    ) -> Segment | None:
        """Return the segment that is due, or None when more audio must come first.

        Args:
            last_index: the segment decided last, 0 for none.
            received_samples: audio of the session received.
            ended: whether no more audio will come.
            merge: go to the newest full boundary instead of the next.
            limit_sample: no segment ends behind this; None for no limit.
        """
        grid_end = self.next_end(last_index, limit_sample)
        if received_samples >= grid_end:
            reach = (
                received_samples if limit_sample is None else min(received_samples, limit_sample)
            )
            index = max(last_index + 1, self.index_at(reach)) if merge else last_index + 1
            end_sample = self.next_end(index - 1, limit_sample)
            return Segment(index, end_sample, grid_end, merged_count=index - last_index - 1)
        if ended:
            return Segment(last_index + 1, received_samples, received_samples, final=True)
        return None

    def index_at(self, sample: int) -> int:
        """Return the newest boundary that is not behind a position; the anchor's before it."""
        waited = (sample - self.anchor_sample) * 1000 - self.wait_ms * self._rate_hertz
        index = self.anchor_index + max(0, waited // (self.segment_ms * self._rate_hertz))
        # Boundaries are rounded down to whole samples, so the next one may be reached already.
        return index + 1 if self.boundary(index + 1) <= sample else index
