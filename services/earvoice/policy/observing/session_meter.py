"""A session's part in the service's metrics."""

from __future__ import annotations

from opentelemetry.context import Context

from earvoice.policy.event import ReleasedItem, SegmentWorked, SessionTotals
from earvoice.policy.lag import word_lag_ms
from earvoice.policy.segment_record import SegmentRecord
from earvoice.telemetry.metering import Meters
from earvoice.telemetry.schema import STAGES


class SessionMeter:
    """Measures one session.

    Args:
        meters: the service's.
        clock: `live` or `true`.
        rate_hertz: of its samples.
    """

    def __init__(self, meters: Meters, clock: str, rate_hertz: int) -> None:
        self._meters = meters
        self._clock = clock
        self._rate_hertz = rate_hertz

    def note_segment(
        self, record: SegmentRecord, worked: SegmentWorked, context: Context | None
    ) -> None:
        """Measure a segment.

        Args:
            record: what happened.
            worked: what it came to.
            context: its trace, for exemplars; None where it is not traced.
        """
        meters = self._meters
        meters.record("earvoice.segment.computation", worked.computation_ms, context=context)
        for item in record.items:
            if item.starts_word:
                self._note_word(item, context)
        if record.stages is not None and record.items:
            for stage in STAGES:
                value_ms = getattr(record.stages, f"{stage}_ms")
                meters.record("earvoice.stage.duration", value_ms, stage, context)
        if worked.merged_count:
            meters.count("earvoice.segments.merged", worked.merged_count)
        for guard in record.guards:
            meters.count("earvoice.guard.hits", 1, guard)
        self._note_draft(record)

    def note_end(self, totals: SessionTotals) -> None:
        """Measure a session that has come to its end."""
        if totals.audio_samples:
            audio_ms = totals.audio_samples * 1000 / self._rate_hertz
            factor = totals.computation_ms / audio_ms
            self._meters.record("earvoice.session.real_time_factor", factor)

    def _note_word(self, item: ReleasedItem, context: Context | None) -> None:
        source_end_ms = item.source_end_sample * 1000 / self._rate_hertz
        delay_ms = item.delay_samples * 1000 / self._rate_hertz
        for clock, release_ms in (("ideal", delay_ms), (self._clock, item.elapsed_ms)):
            lag_ms = word_lag_ms(release_ms, source_end_ms)
            self._meters.record("earvoice.word.lag", lag_ms, clock, context)

    def _note_draft(self, record: SegmentRecord) -> None:
        if record.request is None or record.generation is None or not record.request.draft:
            return
        accepted = record.generation.draft_accepted_count
        rejected = len(record.request.draft) - accepted
        self._meters.count("earvoice.draft.tokens", accepted, "accepted")
        self._meters.count("earvoice.draft.tokens", rejected, "rejected")
