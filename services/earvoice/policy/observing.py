"""What operators see of a session: its spans and its part in the metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind

from earvoice.api.v1 import types_pb2
from earvoice.policy.event import SegmentWorked, SessionTotals
from earvoice.policy.session import SegmentObserver
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.timeline import SegmentTimeline
from earvoice.policy.words import StageTimings, Word
from earvoice.runtime.lag import word_lag_ms
from earvoice.telemetry.metering import Meters, exemplar_context
from earvoice.telemetry.schema import STAGES
from earvoice.telemetry.service_telemetry import ServiceTelemetry
from earvoice.telemetry.trace_context import (
    draw_traced,
    new_child,
    new_root,
    read_traceparent,
    traceparent_of,
)

if TYPE_CHECKING:
    from earvoice.telemetry.tracing import SpanBatch, Tracer

_RPC_ENCODE = {
    "rpc.system.name": "grpc",
    "rpc.method": "earvoice.api.v1.EncoderService/Encode",
}
_RPC_DECODE = {
    "rpc.system.name": "grpc",
    "rpc.method": "earvoice.api.v1.DecoderService/Decode",
}

Attributes = dict[str, str | int | float]


class _OpenSegment:
    """A segment in progress, its trace, and the call spans that messages name as parents."""

    def __init__(self, timeline: SegmentTimeline, batch: SpanBatch) -> None:
        self.timeline = timeline
        self.batch = batch
        self.root = new_root()
        self.encode = new_child(self.root)
        self.decode = new_child(self.root)


class SessionWatch(SegmentObserver):
    """Records one session: spans if it is traced, metrics if anybody reads them.

    A traced session has one trace a segment, each linked to the session's own span. A session
    that is not traced gets a span only if it ends with an error.

    Attributes:
        traceparents: the spans that its messages currently belong to, by service.
    """

    def __init__(
        self,
        telemetry: ServiceTelemetry,
        session_id: str,
        traceparent: str,
        options: StreamOptions,
        model: types_pb2.ModelDescription,
        now_s: Callable[[], float],
    ) -> None:
        self.traceparents = dict.fromkeys(("encoder", "decoder"), traceparent)
        self._session_id = session_id
        self._options = options
        self._model = model
        self._now_s = now_s
        self._rate_hertz = options.audio_format.sample_rate_hz
        self._clock = "live" if options.merges_segments else "true"
        self._meters = telemetry.meters if telemetry.has_metrics else None
        self._tracer = telemetry.tracer
        self._traced = False
        self._segment: _OpenSegment | None = None
        if self._tracer is not None:
            self._batch = self._tracer.batch()
            self._begin_s = now_s()
            self._parent = read_traceparent(traceparent)
            self._context = new_child(self._parent) if self._parent else new_root()
            self._traced = draw_traced(traceparent, telemetry.trace_ratio)
        if self._traced:
            self.traceparents |= dict.fromkeys(self.traceparents, traceparent_of(self._context))

    def begin(self, timeline: SegmentTimeline) -> None:
        if self._traced and self._tracer is not None:
            self._segment = segment = _OpenSegment(timeline, self._tracer.batch())
            self.traceparents["encoder"] = traceparent_of(segment.encode)
            self.traceparents["decoder"] = traceparent_of(segment.decode)

    def end(self, timeline: SegmentTimeline, worked: SegmentWorked) -> None:
        if self._meters is not None:
            span = self._segment.root if self._segment else None
            self._measure(self._meters, timeline, worked, exemplar_context(span))
        if self._traced:
            self._end_segment(worked)

    def close(self, status: str, totals: SessionTotals, error: str) -> None:
        if self._meters is not None and status == "OK" and totals.audio_samples:
            factor = totals.computation_ms / self._ms(totals.audio_samples)
            self._meters.record("earvoice.session.real_time_factor", factor)
        self._end_segment(None, error)
        if self._tracer is not None and (self._traced or error):
            self._end_session(self._tracer, status, totals, error)

    def _ms(self, samples: int) -> float:
        return samples * 1000 / self._rate_hertz

    def _measure(
        self,
        meters: Meters,
        timeline: SegmentTimeline,
        worked: SegmentWorked,
        context: Context | None,
    ) -> None:
        """Record a segment's metrics; the context links exemplars to its trace, None for none."""
        meters.record("earvoice.segment.computation", worked.computation_ms, context=context)
        for word in timeline.words:
            if word.starts_word:
                source_end_ms = self._ms(word.source_end_sample)
                ideal_ms = word_lag_ms(self._ms(word.delay_samples), source_end_ms)
                meters.record("earvoice.word.lag", ideal_ms, "ideal", context)
                lag_ms = word_lag_ms(word.elapsed_ms, source_end_ms)
                meters.record("earvoice.word.lag", lag_ms, self._clock, context)
                meters.record("earvoice.word.confidence", word.confidence, context=context)
        if timeline.stages is not None and timeline.words:
            for stage in STAGES:
                value_ms = getattr(timeline.stages, f"{stage}_ms")
                meters.record("earvoice.stage.duration", value_ms, stage, context)
        if worked.merged_segments:
            meters.count("earvoice.segments.merged", worked.merged_segments)
        if timeline.not_understood:
            meters.count("earvoice.utterances.not_understood", 1)
        for guard in timeline.guards:
            meters.count("earvoice.guard.hits", 1, guard)
        accepted = timeline.draft_accepted_count
        if timeline.draft_token_count and accepted is not None:
            rejected = timeline.draft_token_count - accepted
            meters.count("earvoice.draft.tokens", accepted, "accepted")
            meters.count("earvoice.draft.tokens", rejected, "rejected")

    def _end_session(self, tracer: Tracer, status: str, totals: SessionTotals, error: str) -> None:
        options = self._options
        attributes: Attributes = {
            "earvoice.session.id": self._session_id,
            "earvoice.model.name": self._model.name,
            "earvoice.model.hash": self._model.hash,
            "earvoice.policy.name": options.policy.name,
            "earvoice.policy.parameters": json.dumps(options.policy.to_dict()),
            "earvoice.segment.duration_ms": options.segment_ms,
            "earvoice.session.clock": self._clock,
            "earvoice.language.source": self._model.source_language_code,
            "earvoice.language.target": options.target_language_code,
            "earvoice.session.status": status,
            "earvoice.session.audio_ms": self._ms(totals.audio_samples),
            "earvoice.session.words": totals.word_count,
            "earvoice.session.computation_ms": totals.computation_ms,
            "earvoice.session.replays": totals.replays,
        }
        if error:
            attributes["error.type"] = error
        self._batch.add(
            "session",
            self._context,
            self._parent,
            (self._begin_s, self._now_s()),
            attributes,
            kind=SpanKind.SERVER,
            failed=bool(error),
        )
        tracer.put(self._batch.spans)

    def _end_segment(self, worked: SegmentWorked | None, error: str = "") -> None:
        segment, self._segment = self._segment, None
        if segment is None or self._tracer is None:
            return
        line, batch, end_s = segment.timeline, segment.batch, self._now_s()
        attributes = self._segment_attributes(line, worked)
        if error:
            attributes["error.type"] = error
        batch.add(
            "segment",
            segment.root,
            None,
            (min(line.grid_arrival_s, line.started_s), end_s),
            attributes,
            links=(Link(self._context),),
            failed=bool(error),
        )
        if line.encoding_s is not None:
            batch.add(
                "encode",
                segment.encode,
                segment.root,
                (line.encoding_s, line.encoded_s or end_s),
                _RPC_ENCODE,
                kind=SpanKind.CLIENT,
                failed=bool(error) and line.encoded_s is None,
            )
        if line.decoding_s is not None:
            batch.add(
                "decode",
                segment.decode,
                segment.root,
                (line.decoding_s, line.decoded_s or end_s),
                _decode_attributes(line),
                kind=SpanKind.CLIENT,
                failed=bool(error) and line.decoded_s is None,
            )
        if line.deciding_s is not None and line.committed_s is not None:
            batch.add(
                "decide",
                new_child(segment.root),
                segment.root,
                (line.deciding_s, line.committed_s),
                {"earvoice.policy.name": line.policy, "earvoice.guards": line.guards},
            )
        if line.committed_s is not None and line.released_s is not None and line.stages:
            batch.add(
                "emit",
                new_child(segment.root),
                segment.root,
                (line.committed_s, line.released_s),
                {**self._words_attributes(line.words), **_stages_attributes(line.stages)},
            )
        self._tracer.put(batch.spans)

    def _segment_attributes(
        self, timeline: SegmentTimeline, worked: SegmentWorked | None
    ) -> Attributes:
        segment, endpoint = timeline.segment, timeline.endpoint
        attributes: Attributes = {
            "earvoice.session.id": self._session_id,
            "earvoice.utterance.index": timeline.utterance,
            "earvoice.utterance.start_ms": self._ms(timeline.utterance_start_sample),
            "earvoice.segment.index": segment.index,
            "earvoice.segment.end_ms": self._ms(segment.end_sample),
            "earvoice.segment.grid_end_ms": self._ms(segment.grid_end_sample),
            "earvoice.segment.arrival_lateness_ms": timeline.arrival_lateness_ms,
            "earvoice.segment.merged": segment.merged_count,
            "earvoice.segment.states": timeline.state_count,
            "earvoice.segment.replays": timeline.replay_count,
        }
        if worked is not None:
            attributes["earvoice.segment.computation_ms"] = worked.computation_ms
            attributes["earvoice.segment.queue_ms"] = worked.queue_ms
        if endpoint is not None:
            attributes["earvoice.utterance.end_ms"] = self._ms(endpoint.end_sample)
            attributes["earvoice.utterance.cause"] = endpoint.cause
            attributes["earvoice.utterance.not_understood"] = timeline.not_understood
        return attributes

    def _words_attributes(
        self, words: Sequence[Word]
    ) -> dict[str, list[float] | list[bool] | list[int]]:
        return {
            "earvoice.words.delay_ms": [self._ms(word.delay_samples) for word in words],
            "earvoice.words.elapsed_ms": [word.elapsed_ms for word in words],
            "earvoice.words.source_end_ms": [self._ms(word.source_end_sample) for word in words],
            "earvoice.words.starts_word": [word.starts_word for word in words],
            "earvoice.words.hold_ms": [word.hold_ms for word in words],
            "earvoice.words.commit_segment": [word.committed.segment for word in words],
            "earvoice.words.confidence": [word.confidence for word in words],
        }


def _decode_attributes(timeline: SegmentTimeline) -> dict[str, str | int]:
    return {
        **_RPC_DECODE,
        "earvoice.tokens.prefix": timeline.prefix_token_count,
        "earvoice.tokens.proposed": timeline.proposed_token_count,
        "earvoice.tokens.accepted": timeline.accepted_token_count,
        "earvoice.tokens.committed": timeline.committed_token_count,
        "earvoice.draft.tokens": timeline.draft_token_count,
        "earvoice.draft.accepted": timeline.draft_accepted_count or 0,
        "earvoice.beam.size": timeline.beam_size,
    }


def _stages_attributes(stages: StageTimings) -> dict[str, float]:
    parts = {f"earvoice.stage.{stage}_ms": getattr(stages, f"{stage}_ms") for stage in STAGES}
    return {"earvoice.stage.total_ms": stages.total_ms, **parts}
