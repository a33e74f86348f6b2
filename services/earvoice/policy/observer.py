"""Who watches a session's segments."""

from __future__ import annotations

from earvoice.policy.event import SegmentWorked
from earvoice.policy.segment_record import SegmentRecord


class SegmentObserver:
    """Is told of each segment; this one keeps nothing. A watcher must neither wait nor fail."""

    def begin(self, record: SegmentRecord) -> None:
        """Work on a segment begins; its requests to encoder and decoder follow."""

    def end(self, record: SegmentRecord, worked: SegmentWorked) -> None:
        """The segment is finished."""
