"""Where a segment's milliseconds went, so that the parts add up to the whole.

Two clocks, never mixed: ``LiveTimeline`` reads the wall, ``TrueTimeline`` lets a segment start
when its audio exists and the one before is finished, and counts computation only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class HopTimings:
    """One request to another service.

    Attributes:
        round_trip_ms: from sending it to receiving the answer, on our clock.
        elapsed_ms: of those, what the service says it took.
        compute_ms: of those, what it computed.
    """

    round_trip_ms: float = 0.0
    elapsed_ms: float = 0.0
    compute_ms: float = 0.0

    @property
    def queue_ms(self) -> float:
        """Time inside the service that was not computation."""
        return max(0.0, self.elapsed_ms - self.compute_ms)

    @property
    def network_ms(self) -> float:
        """Time outside the service."""
        return self.round_trip_ms - max(self.elapsed_ms, self.compute_ms)

    def __add__(self, other: HopTimings) -> HopTimings:
        """Add up two requests made one after the other."""
        return HopTimings(
            self.round_trip_ms + other.round_trip_ms,
            self.elapsed_ms + other.elapsed_ms,
            self.compute_ms + other.compute_ms,
        )


@dataclass(frozen=True)
class StageTimings:
    """A released word's time since its segment's last sample arrived, in ms.

    ``total_ms`` is the sum of all the others.
    """

    total_ms: float
    merge_wait_ms: float
    previous_segment_wait_ms: float
    encoder_queue_ms: float
    encoder_compute_ms: float
    encoder_network_ms: float
    decoder_queue_ms: float
    decoder_compute_ms: float
    decoder_network_ms: float
    decision_ms: float
    word_hold_ms: float


@dataclass(frozen=True)
class CommitTime:
    """When a token was committed, and how it came to that.

    Attributes:
        elapsed_ms: since the session's first sample existed, on the session's clock.
        moment_ms: the same moment since some fixed one: the session's first sample may turn out to
            be older than was thought when this was committed.
        stages: the parts, without any hold.
        segment: in which segment.
    """

    elapsed_ms: float
    moment_ms: float
    stages: StageTimings
    segment: int = 0


class SegmentTimeline(ABC):
    """One segment's time; the caller adds requests as they are answered.

    Args:
        segment: its place on the grid.
    """

    def __init__(self, segment: int) -> None:
        self._segment = segment
        self.encoder = HopTimings()
        self.decoder = HopTimings()

    @property
    def computation_ms(self) -> float:
        """Computation of all services for the segment."""
        return self.encoder.compute_ms + self.decoder.compute_ms

    @property
    def queue_ms(self) -> float:
        """Waiting for engines."""
        return self.encoder.queue_ms + self.decoder.queue_ms

    @abstractmethod
    def commit_time(self, now_s: float, deciding: HopTimings) -> CommitTime:
        """Return what a token committed now is to be told.

        Args:
            now_s: the session's monotonic clock.
            deciding: the generation up to the answer that decided.
        """


class LiveTimeline(SegmentTimeline):
    """Reads the wall clock.

    Args:
        origin_s: when the session's first sample existed.
        grid_arrival_s: when the segment's last sample on its own grid arrived.
        arrival_s: when its last sample arrived, merged segments included.
        started_s: when work on it began.
        segment: its place on the grid.
    """

    def __init__(
        self,
        origin_s: float,
        grid_arrival_s: float,
        arrival_s: float,
        started_s: float,
        segment: int = 0,
    ) -> None:
        super().__init__(segment)
        self._origin_s = origin_s
        self._grid_arrival_s = grid_arrival_s
        self._arrival_s = arrival_s
        self._started_s = started_s

    def commit_time(self, now_s: float, deciding: HopTimings) -> CommitTime:
        """Whatever is neither waiting nor a request is the policy service's own work."""
        decoder = self.decoder + deciding
        own_ms = (now_s - self._started_s) * 1000
        stages = StageTimings(
            total_ms=(now_s - self._grid_arrival_s) * 1000,
            merge_wait_ms=(self._arrival_s - self._grid_arrival_s) * 1000,
            previous_segment_wait_ms=(self._started_s - self._arrival_s) * 1000,
            encoder_queue_ms=self.encoder.queue_ms,
            encoder_compute_ms=self.encoder.compute_ms,
            encoder_network_ms=self.encoder.network_ms,
            decoder_queue_ms=decoder.queue_ms,
            decoder_compute_ms=decoder.compute_ms,
            decoder_network_ms=decoder.network_ms,
            decision_ms=own_ms - self.encoder.round_trip_ms - decoder.round_trip_ms,
            word_hold_ms=0.0,
        )
        elapsed_ms = (now_s - self._origin_s) * 1000
        return CommitTime(elapsed_ms, now_s * 1000, stages, self._segment)


class TrueTimeline(SegmentTimeline):
    """Counts computation only: several streams at once do not spoil it.

    Args:
        arrival_ms: the segment's end in audio time.
        previous_finished_ms: when the segment before was finished, on this clock.
        segment: its place on the grid.
    """

    def __init__(self, arrival_ms: float, previous_finished_ms: float, segment: int = 0) -> None:
        super().__init__(segment)
        self._arrival_ms = arrival_ms
        self._started_ms = max(arrival_ms, previous_finished_ms)

    @property
    def finished_ms(self) -> float:
        """When the segment is finished, on this clock."""
        return self._started_ms + self.computation_ms

    def commit_time(self, now_s: float, deciding: HopTimings) -> CommitTime:
        """Engines' queues, the network and our own work are not part of this clock."""
        del now_s
        decoder_ms = self.decoder.compute_ms + deciding.compute_ms
        wait_ms = self._started_ms - self._arrival_ms
        total_ms = wait_ms + self.encoder.compute_ms + decoder_ms
        stages = StageTimings(
            total_ms=total_ms,
            merge_wait_ms=0.0,
            previous_segment_wait_ms=wait_ms,
            encoder_queue_ms=0.0,
            encoder_compute_ms=self.encoder.compute_ms,
            encoder_network_ms=0.0,
            decoder_queue_ms=0.0,
            decoder_compute_ms=decoder_ms,
            decoder_network_ms=0.0,
            decision_ms=0.0,
            word_hold_ms=0.0,
        )
        now_ms = self._arrival_ms + total_ms
        return CommitTime(now_ms, now_ms, stages, self._segment)
