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
    """The boundaries of one utterance's segments.

    Args:
        sample_rate_hertz: frames per second.
        segment_ms: duration of a segment, more than 0.
        initial_wait_ms: how much longer the first one is, 0 or more.
        limit_samples: no boundary lies past this; None for no limit.
    """

    def __init__(
        self,
        sample_rate_hertz: int,
        segment_ms: int,
        initial_wait_ms: int,
        limit_samples: int | None,
    ) -> None:
        self._segment_samples_times_1000 = segment_ms * sample_rate_hertz
        self._wait_samples_times_1000 = initial_wait_ms * sample_rate_hertz
        self._limit_index = None
        if limit_samples is not None:
            self._limit_index = max(1, self._index_at(limit_samples))

    def boundary(self, index: int) -> int:
        """Return where segment ``index`` ends, in samples since the utterance's start."""
        if index == 0:
            return 0
        total = index * self._segment_samples_times_1000 + self._wait_samples_times_1000
        return total // 1000

    def is_last(self, index: int) -> bool:
        """Say whether the utterance may not grow past this segment."""
        return self._limit_index is not None and index >= self._limit_index

    def next_segment(
        self, start_sample: int, last_index: int, received_samples: int, *, ended: bool, merge: bool
    ) -> Segment | None:
        """Return the segment that is due, or None when more audio must come first.

        Args:
            start_sample: the utterance's start.
            last_index: the segment decided last, 0 for none.
            received_samples: audio of the session received.
            ended: whether no more audio will come.
            merge: go to the newest full boundary instead of the next.
        """
        newest = self._index_at(received_samples - start_sample)
        if newest > last_index:
            index = newest if merge else last_index + 1
            if self._limit_index is not None:
                index = max(last_index + 1, min(index, self._limit_index))
            return Segment(
                index,
                start_sample + self.boundary(index),
                start_sample + self.boundary(last_index + 1),
                merged_count=index - last_index - 1,
            )
        if ended:
            return Segment(last_index + 1, received_samples, received_samples, final=True)
        return None

    def _index_at(self, samples: int) -> int:
        """Return the newest boundary within ``samples`` of the start; 0 for none."""
        index = (samples * 1000 - self._wait_samples_times_1000) // self._segment_samples_times_1000
        index = max(0, index)
        # Boundaries are rounded down to whole samples, so the next one may be reached already.
        return index + 1 if self.boundary(index + 1) <= samples else index
