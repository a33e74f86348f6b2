"""A segment's stages: as the policy service says, or from the durations of its spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from earvoice.latency.span import Span
from earvoice.latency.stage import SEGMENT_STAGES, StageTimes


def said_stages(emit: Span) -> StageTimes:
    """Return what the policy service says of the words that it hands out.

    Raises:
        SpanError: the span lacks a stage.
    """
    return {stage.name: emit.number(f"stage.{stage.name}_ms") for stage in SEGMENT_STAGES}


def spanned_stages(segment: Span, spans: Sequence[Span], clock: str) -> StageTimes:
    """Return where the time of a segment that committed nothing went.

    Network is a round trip less what the other side says it took; the service's own work is what is
    left. On the clock ``true`` only computation takes time.
    """
    encoder = _Hop.of(spans, "encode", "encoder.compute")
    decoder = _Hop.of(spans, "decode", "decoder.steps")
    stages = dict.fromkeys((stage.name for stage in SEGMENT_STAGES), 0.0)
    stages["encoder_compute"], stages["decoder_compute"] = encoder.compute_ms, decoder.compute_ms
    if clock == "live":
        wait_ms = _wait_ms(segment, spans)
        merged = segment.number("segment.merged", 0) > 0
        stages["merge_wait" if merged else "previous_segment_wait"] = wait_ms
        stages["encoder_queue"], stages["decoder_queue"] = encoder.queue_ms, decoder.queue_ms
        stages["encoder_network"] = encoder.network_ms
        stages["decoder_network"] = decoder.network_ms
        stages["decision"] = max(0.0, segment.duration_ms - sum(stages.values()))
    return stages


def _wait_ms(segment: Span, spans: Sequence[Span]) -> float:
    """From the segment's arrival to its first request: both of the policy service's own clock."""
    begins_ns = [span.start_ns for span in spans if span.name in ("encode", "decode")]
    return max(0.0, (min(begins_ns) - segment.start_ns) / 1e6) if begins_ns else 0.0


@dataclass(frozen=True)
class _Hop:
    """The requests of a segment to one service."""

    round_trip_ms: float
    queue_ms: float
    compute_ms: float

    @property
    def network_ms(self) -> float:
        return max(0.0, self.round_trip_ms - self.queue_ms - self.compute_ms)

    @classmethod
    def of(cls, spans: Sequence[Span], round_trip: str, engine: str) -> _Hop:
        """The engine's own numbers count: a span of many steps holds waits between them too."""
        service = engine.partition(".")[0]
        inside_ms = _sum(spans, f"{service}.queue", f"{service}.prefill", engine)
        compute_ms = sum(span.number("engine.compute_ms") for span in spans if span.name == engine)
        return cls(_sum(spans, round_trip), max(0.0, inside_ms - compute_ms), compute_ms)


def _sum(spans: Sequence[Span], *names: str) -> float:
    return sum(span.duration_ms for span in spans if span.name in names)
