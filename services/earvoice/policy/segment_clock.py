"""When a segment's audio came and since when it has been worked on."""

from __future__ import annotations

from collections.abc import Callable

from earvoice.policy.arrival_clock import ArrivalClock
from earvoice.policy.audio_buffer import AudioBuffer
from earvoice.policy.segment_grid import Segment
from earvoice.policy.segment_record import SegmentRecord
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.timeline import LiveTimeline, SegmentTimeline, TrueTimeline
from earvoice.policy.utterance import Utterance


class SegmentClock:
    """Reads the wall in MERGE; in EVERY_SEGMENT nothing depends on when audio came.

    Args:
        options: what the stream asked for; updates change nothing here.
        audio: knows when each part of it came.
        arrivals: knows when the first sample existed.
        now_s: monotonic clock.
    """

    def __init__(
        self,
        options: StreamOptions,
        audio: AudioBuffer,
        arrivals: ArrivalClock,
        now_s: Callable[[], float],
    ) -> None:
        self._is_live = options.merges_segments
        self._rate_hertz = options.audio_format.sample_rate_hertz
        self._audio = audio
        self._arrivals = arrivals
        self._now_s = now_s

    @property
    def origin_s(self) -> float | None:
        """When the session's first sample existed; None where nothing depends on it."""
        return self._arrivals.origin_s if self._is_live else None

    def record(self, utterance: Utterance, segment: Segment, free_s: float) -> SegmentRecord:
        """Return a segment's empty record.

        Args:
            utterance: that it belongs to.
            segment: worked on next.
            free_s: since when nothing of the segment before was left to do.
        """
        if not self._is_live:
            now_s = self._now_s()
            return SegmentRecord(
                utterance.index,
                utterance.begin_sample,
                utterance.policy.name,
                segment,
                now_s,
                now_s,
                0.0,
            )
        grid_arrival_s = self._audio.arrival_s(segment.grid_end_sample)
        expected_s = self._arrivals.origin_s + segment.grid_end_sample / self._rate_hertz
        return SegmentRecord(
            utterance.index,
            utterance.begin_sample,
            utterance.policy.name,
            segment,
            grid_arrival_s,
            # A session that was free and still came late had no turn: that is its own work.
            max(free_s, self._audio.arrival_s(segment.end_sample)),
            (grid_arrival_s - expected_s) * 1000,
        )

    def timeline(
        self, segment: Segment, record: SegmentRecord, true_finished_ms: float
    ) -> SegmentTimeline:
        """Return the clock of a segment that begins.

        Args:
            segment: its place.
            record: of it.
            true_finished_ms: when the one before was finished, on the clock of a `TrueTimeline`.
        """
        if not self._is_live:
            arrival_ms = segment.end_sample * 1000 / self._rate_hertz
            return TrueTimeline(arrival_ms, true_finished_ms, segment.index)
        return LiveTimeline(
            self._arrivals.origin_s,
            record.grid_arrival_s,
            self._audio.arrival_s(segment.end_sample),
            record.started_s,
            segment.index,
        )
