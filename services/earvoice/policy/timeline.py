"""What happened to a segment, and where its milliseconds went: the parts add up to the whole.

Two clocks, never mixed. The live one is the wall clock. On the true one a segment starts when its
audio exists and the one before is finished, and only computation takes time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from earvoice.policy.endpoints import Endpoint, Segment
from earvoice.policy.words import CommitTime, StageTimings, Word


@dataclass(frozen=True, slots=True)
class HopTimings:
    """One request to another service.

    Attributes:
        round_trip_ms: from sending it to receiving the answer, on our clock.
        elapsed_ms: of those, what the service says it took.
        compute_ms: of those, what it spent computing.
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
        return HopTimings(
            self.round_trip_ms + other.round_trip_ms,
            self.elapsed_ms + other.elapsed_ms,
            self.compute_ms + other.compute_ms,
        )


_NO_TIME = HopTimings()


@dataclass(slots=True, kw_only=True)
class SegmentTimeline:
    """One segment, filled in while it is worked on.

    Moments are on the session's monotonic clock, in s, None while not reached.

    Attributes:
        arrival_ms: when the segment's audio exists, on the true clock; None on the live one.
        previous_finished_ms: when the segment before was finished, on the true clock.
        origin_s: when the session's first sample existed; unused on the true clock.
        arrival_s: when the segment's last sample arrived, merged segments included; likewise.
        grid_arrival_s: when the last sample on its own grid arrived.
        started_s: when work on it could begin.
        arrival_lateness_ms: how much later `grid_arrival_s` was than `origin_s` led to expect.
        decoder: the generation so far.
        encoding_s: the encoder is asked.
        encoded_s: its last answer is here.
        decoding_s: the decoder is asked.
        deciding_s: the deciding answer is here.
        committed_s: tokens are committed.
        released_s: their words are in the outbox.
        decoded_s: the generation has ended.
        endpoint: of the utterance, if this segment is its last.
        not_understood: whether the utterance ends as not understood.
        prefix_token_count: of the forced prefix that was decoded.
        draft_accepted_count: draft tokens accepted; None where no generation has ended.
        proposed_token_count: new tokens that came before the decision.
        accepted_token_count: new tokens that the policy would commit.
        committed_token_count: of those, the ones left by guards and word border.
        hypothesis_tokens: of the whole hypothesis, where the client wants them.
        guards: those that cut the commit.
        replay_count: how often it went to another replica because one was lost.
    """

    segment: Segment
    utterance: int = 0
    utterance_start_sample: int = 0
    policy: str = ""
    grid_arrival_s: float
    started_s: float
    arrival_ms: float | None = None
    previous_finished_ms: float = 0.0
    origin_s: float = 0.0
    arrival_s: float = 0.0
    arrival_lateness_ms: float = 0.0
    encoder: HopTimings = _NO_TIME
    decoder: HopTimings = _NO_TIME
    encoding_s: float | None = None
    encoded_s: float | None = None
    decoding_s: float | None = None
    deciding_s: float | None = None
    committed_s: float | None = None
    released_s: float | None = None
    decoded_s: float | None = None
    state_count: int = 0
    endpoint: Endpoint | None = None
    not_understood: bool = False
    prefix_token_count: int = 0
    draft_token_count: int = 0
    draft_accepted_count: int | None = None
    beam_size: int = 1
    proposed_token_count: int = 0
    accepted_token_count: int = 0
    committed_token_count: int = 0
    hypothesis_tokens: Sequence[int] = ()
    guards: tuple[str, ...] = ()
    replay_count: int = 0
    stages: StageTimings | None = None
    words: Sequence[Word] = ()

    @property
    def computation_ms(self) -> float:
        return self.encoder.compute_ms + self.decoder.compute_ms

    @property
    def finished_ms(self) -> float:
        """When the segment is finished on the true clock; 0 on the live one."""
        if self.arrival_ms is None:
            return 0.0
        return max(self.arrival_ms, self.previous_finished_ms) + self.computation_ms

    def commit(self, now_s: float) -> CommitTime:
        """Note that tokens are committed now; return their commit time."""
        self.committed_s = now_s
        encoder, decoder = self.encoder, self.decoder
        if self.arrival_ms is not None:
            # Engines' queues, the network and our own work are not part of this clock.
            wait_ms = max(0.0, self.previous_finished_ms - self.arrival_ms)
            total_ms = wait_ms + encoder.compute_ms + decoder.compute_ms
            self.stages = StageTimings(
                total_ms=total_ms,
                previous_segment_wait_ms=wait_ms,
                encoder_compute_ms=encoder.compute_ms,
                decoder_compute_ms=decoder.compute_ms,
            )
            now_ms = self.arrival_ms + total_ms
            return CommitTime(now_ms, now_ms, self.stages, self.segment.index)
        # Whatever is neither waiting nor a request is the policy service's own work.
        own_ms = (now_s - self.started_s) * 1000
        self.stages = StageTimings(
            total_ms=(now_s - self.grid_arrival_s) * 1000,
            merge_wait_ms=(self.arrival_s - self.grid_arrival_s) * 1000,
            previous_segment_wait_ms=(self.started_s - self.arrival_s) * 1000,
            encoder_queue_ms=encoder.queue_ms,
            encoder_compute_ms=encoder.compute_ms,
            encoder_network_ms=encoder.network_ms,
            decoder_queue_ms=decoder.queue_ms,
            decoder_compute_ms=decoder.compute_ms,
            decoder_network_ms=decoder.network_ms,
            decision_ms=own_ms - encoder.round_trip_ms - decoder.round_trip_ms,
        )
        elapsed_ms = (now_s - self.origin_s) * 1000
        return CommitTime(elapsed_ms, now_s * 1000, self.stages, self.segment.index)
