"""The stages of a word's time, in order: their names and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from earvoice.latency.span import Span


@dataclass(frozen=True)
class Stage:
    """One part of a word's time.

    Attributes:
        name: without unit, as in ``earvoice.stage.NAME_ms``.
        blame: text for a word that is late because of this stage.
    """

    name: str
    label: str
    blame: str


AUDIO_WAIT = Stage("audio_wait", "audio wait", "the policy waited for more audio")
LATENESS = Stage("arrival_lateness", "late arrival of audio", "its audio arrived late")
HOLD = Stage("word_hold", "hold for the word", "the word was held until complete")
# The parts of `stage.total_ms`, from the segment's arrival to the commit.
SEGMENT_STAGES = (
    Stage("merge_wait", "merge wait", "its segment was merged into a longer one"),
    Stage(
        "previous_segment_wait",
        "wait for the segment before",
        "the segment before was still being worked on",
    ),
    Stage("encoder_queue", "encoder queue", "it waited for the encoder's engine"),
    Stage("encoder_compute", "encoder computation", "the encoder computed long"),
    Stage("encoder_network", "network to the encoder", "the encoder's network was slow"),
    Stage("decoder_queue", "decoder queue", "it waited for the decoder's engine"),
    Stage("decoder_compute", "decoder computation", "the decoder computed long"),
    Stage("decoder_network", "network to the decoder", "the decoder's network was slow"),
    Stage("decision", "decision", "the policy service itself was slow"),
)
# They add up to a word's lag.
WORD_STAGES = (AUDIO_WAIT, LATENESS, *SEGMENT_STAGES, HOLD)

StageTimes = Mapping[str, float]
"""Milliseconds by the name of the stage."""


def said_stages(emit: Span) -> StageTimes:
    return {stage.name: emit.number(f"stage.{stage.name}_ms") for stage in SEGMENT_STAGES}


def spanned_stages(segment: Span, spans: Sequence[Span], clock: str) -> StageTimes:
    """Return where the time of a segment that committed nothing went.

    Network is a round trip minus the time that the other side reports; the service's own work is
    the rest. On the clock ``true`` only computation takes time.
    """
    stages = dict.fromkeys((stage.name for stage in SEGMENT_STAGES), 0.0)
    for round_trip, engine in (("encode", "encoder.compute"), ("decode", "decoder.steps")):
        queue_ms, compute_ms, network_ms = _hop(spans, round_trip, engine)
        service = engine.partition(".")[0]
        stages[f"{service}_compute"] = compute_ms
        if clock == "live":
            stages[f"{service}_queue"], stages[f"{service}_network"] = queue_ms, network_ms
    if clock == "live":
        merged = segment.number("segment.merged", 0) > 0
        stages["merge_wait" if merged else "previous_segment_wait"] = _wait_ms(segment, spans)
        stages["decision"] = max(0.0, segment.duration_ms - sum(stages.values()))
    return stages


def _wait_ms(segment: Span, spans: Sequence[Span]) -> float:
    begins_ns = [span.start_ns for span in spans if span.name in ("encode", "decode")]
    return max(0.0, (min(begins_ns) - segment.start_ns) / 1e6) if begins_ns else 0.0


def _hop(spans: Sequence[Span], round_trip: str, engine: str) -> tuple[float, float, float]:
    """Return the (queue, compute, network) ms of a segment's requests to one service.

    The engine's own numbers count: a span of many steps also includes the waits between them.
    """
    service = engine.partition(".")[0]
    inside_ms = _sum(spans, f"{service}.queue", f"{service}.prefill", engine)
    compute_ms = sum(span.number("engine.compute_ms") for span in spans if span.name == engine)
    queue_ms = max(0.0, inside_ms - compute_ms)
    return queue_ms, compute_ms, max(0.0, _sum(spans, round_trip) - queue_ms - compute_ms)


def _sum(spans: Sequence[Span], *names: str) -> float:
    return sum(span.duration_ms for span in spans if span.name in names)
