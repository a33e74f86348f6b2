"""Which segments are due for the audio sent so far: when all are done, nothing more will come."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from earvoice.client.event import EndOfUtterance, SegmentDone


class SegmentGrid:
    """The boundaries of a session that decides every segment, in samples.

    Segment k of an utterance ends k segment durations after its start, all later by the initial
    wait; the next utterance begins where it ended.

    Args:
        sample_rate_hz: of the audio sent.
        segment_ms: duration of a segment.
        initial_wait_ms: by how much the first of an utterance is longer.
    """

    def __init__(self, sample_rate_hz: int, segment_ms: int, initial_wait_ms: int) -> None:
        self._rate_hz = sample_rate_hz
        self._segment_ms = segment_ms
        self._wait_ms = initial_wait_ms
        self._start_sample = 0
        self._segment = 0
        self._border_follows = False

    def has_due(self, sent_samples: int) -> bool:
        """Say whether a segment must still come for so much audio."""
        if self._border_follows:
            return True
        next_ms = (self._segment + 1) * self._segment_ms + self._wait_ms
        return self._start_sample + next_ms * self._rate_hz // 1000 <= sent_samples

    def note_segment(self, done: SegmentDone) -> None:
        """Take note of a segment that is done."""
        self._segment = done.segment
        self._border_follows = done.ends_utterance

    def note_utterance(self, ended: EndOfUtterance) -> None:
        """Take note of an utterance's end."""
        self._start_sample = round(ended.end_ms * self._rate_hz / 1000)
        self._segment = 0
        self._border_follows = False
