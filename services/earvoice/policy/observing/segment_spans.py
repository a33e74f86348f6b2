"""From a segment's record to its spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry.trace import Link, SpanContext, SpanKind

from earvoice.policy.event import ReleasedItem, SegmentWorked
from earvoice.policy.segment_record import SegmentRecord
from earvoice.policy.timeline import StageTimings
from earvoice.telemetry.moment import Interval
from earvoice.telemetry.schema import STAGES
from earvoice.telemetry.trace_context import new_child, new_root

if TYPE_CHECKING:
    from earvoice.telemetry.tracing import SpanBatch

_RPC_ENCODE = {
    "rpc.system.name": "grpc",
    "rpc.method": "earvoice.api.v1.EncoderService/Encode",
}
_RPC_DECODE = {
    "rpc.system.name": "grpc",
    "rpc.method": "earvoice.api.v1.DecoderService/Decode",
}


class SegmentContexts:
    """The trace of one segment: its root, and the calls that messages name as their parents."""

    def __init__(self) -> None:
        self.root = new_root()
        self.encode = new_child(self.root)
        self.decode = new_child(self.root)


@dataclass(frozen=True)
class SegmentSpans:
    """Writes the spans of one session's segments.

    Attributes:
        session_id: the session's.
        session: the session's span, to which segments are linked.
        rate_hertz: of its samples.
    """

    session_id: str
    session: SpanContext
    rate_hertz: int

    def write(
        self,
        batch: SpanBatch,
        contexts: SegmentContexts,
        record: SegmentRecord,
        end_s: float,
        worked: SegmentWorked | None,
        error: str = "",
    ) -> None:
        """Add a segment's spans.

        Args:
            batch: takes them.
            contexts: the segment's trace.
            record: what happened.
            end_s: when it was over.
            worked: what it came to; None for a segment that was not finished.
            error: the reason for that; empty where it is no error.
        """
        attributes = self._segment(record, worked)
        if error:
            attributes["error.type"] = error
        batch.add(
            "segment",
            contexts.root,
            None,
            Interval(min(record.grid_arrival_s, record.started_s), end_s),
            attributes,
            links=(Link(self.session),),
            failed=bool(error),
        )
        self._write_calls(batch, contexts, record, end_s)
        self._write_decision(batch, contexts, record)

    def _write_calls(
        self, batch: SpanBatch, contexts: SegmentContexts, record: SegmentRecord, end_s: float
    ) -> None:
        if record.encoding_s is not None:
            batch.add(
                "encode",
                contexts.encode,
                contexts.root,
                Interval(record.encoding_s, record.encoded_s or end_s),
                _RPC_ENCODE,
                kind=SpanKind.CLIENT,
                failed=record.encoded_s is None,
            )
        if record.decoding_s is not None:
            batch.add(
                "decode",
                contexts.decode,
                contexts.root,
                Interval(record.decoding_s, record.decoded_s or end_s),
                _decode(record),
                kind=SpanKind.CLIENT,
                failed=record.decoded_s is None,
            )

    def _write_decision(
        self, batch: SpanBatch, contexts: SegmentContexts, record: SegmentRecord
    ) -> None:
        if record.deciding_s is not None and record.committed_s is not None:
            batch.add(
                "decide",
                new_child(contexts.root),
                contexts.root,
                Interval(record.deciding_s, record.committed_s),
                {"earvoice.policy.name": record.policy, "earvoice.guards": record.guards},
            )
        if record.committed_s is not None and record.released_s is not None and record.stages:
            batch.add(
                "emit",
                new_child(contexts.root),
                contexts.root,
                Interval(record.committed_s, record.released_s),
                {**self._words(record.items), **_stages(record.stages)},
            )

    def _segment(
        self, record: SegmentRecord, worked: SegmentWorked | None
    ) -> dict[str, str | int | float]:
        segment, endpoint = record.segment, record.endpoint
        attributes: dict[str, str | int | float] = {
            "earvoice.session.id": self.session_id,
            "earvoice.utterance.index": record.utterance,
            "earvoice.utterance.start_ms": self._ms(record.utterance_start_sample),
            "earvoice.segment.index": segment.index,
            "earvoice.segment.end_ms": self._ms(segment.end_sample),
            "earvoice.segment.grid_end_ms": self._ms(segment.grid_end_sample),
            "earvoice.segment.arrival_lateness_ms": record.arrival_lateness_ms,
            "earvoice.segment.merged": segment.merged_count,
            "earvoice.segment.states": record.state_count,
            "earvoice.segment.replays": record.replay_count,
        }
        if worked is not None:
            attributes["earvoice.segment.computation_ms"] = worked.computation_ms
            attributes["earvoice.segment.queue_ms"] = worked.queue_ms
        if endpoint is not None:
            attributes["earvoice.utterance.end_ms"] = self._ms(endpoint.end_sample)
            attributes["earvoice.utterance.cause"] = endpoint.cause.value
        return attributes

    def _words(
        self, items: Sequence[ReleasedItem]
    ) -> dict[str, list[float] | list[bool] | list[int]]:
        return {
            "earvoice.words.delay_ms": [self._ms(item.delay_samples) for item in items],
            "earvoice.words.elapsed_ms": [item.elapsed_ms for item in items],
            "earvoice.words.source_end_ms": [self._ms(item.source_end_sample) for item in items],
            "earvoice.words.starts_word": [item.starts_word for item in items],
            "earvoice.words.hold_ms": [item.stages.word_hold_ms for item in items],
            "earvoice.words.commit_segment": [item.commit_segment for item in items],
        }

    def _ms(self, samples: int) -> float:
        return samples * 1000 / self.rate_hertz


def _decode(record: SegmentRecord) -> dict[str, str | int]:
    request, generation = record.request, record.generation
    return {
        **_RPC_DECODE,
        "earvoice.tokens.prefix": len(request.prefix) if request else 0,
        "earvoice.tokens.proposed": record.proposed_token_count,
        "earvoice.tokens.accepted": record.accepted_token_count,
        "earvoice.tokens.committed": record.committed_token_count,
        "earvoice.draft.tokens": len(request.draft) if request else 0,
        "earvoice.draft.accepted": generation.draft_accepted_count if generation else 0,
        "earvoice.beam.size": request.beam_size if request else 1,
    }


def _stages(stages: StageTimings) -> dict[str, float]:
    parts = {f"earvoice.stage.{stage}_ms": getattr(stages, f"{stage}_ms") for stage in STAGES}
    return {"earvoice.stage.total_ms": stages.total_ms, **parts}
