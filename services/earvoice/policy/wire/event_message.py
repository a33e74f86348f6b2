"""What a session tells, as messages, and read back."""

from __future__ import annotations

from dataclasses import asdict, fields

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.policy.endpoint import EndCause
from earvoice.policy.event import SegmentWorked, SessionTotals, UtteranceEnded
from earvoice.policy.timeline import StageTimings

CAUSES = {
    EndCause.PAUSE: public_pb.UTTERANCE_END_CAUSE_PAUSE,
    EndCause.FORCED: public_pb.UTTERANCE_END_CAUSE_FORCED,
    EndCause.END_OF_AUDIO: public_pb.UTTERANCE_END_CAUSE_END_OF_AUDIO,
}
_CAUSE_NAMES = {int(number): cause for cause, number in CAUSES.items()}


def segment_message(event: SegmentWorked) -> public_pb.SegmentDone:
    """Return a segment's message."""
    message = public_pb.SegmentDone(
        utterance=event.utterance,
        segment=event.segment,
        end_sample=event.end_sample,
        computation_ms=event.computation_ms,
        queue_ms=event.queue_ms,
        merged_segments=event.merged_count,
        item_count=event.item_count,
        ends_utterance=event.ends_utterance,
    )
    if event.hypothesis is not None:
        message.hypothesis_tokens.extend(event.hypothesis.tokens)
        message.prefix_token_count = event.hypothesis.prefix_token_count
        message.committed_token_count = event.hypothesis.committed_token_count
    return message


def read_segment(message: public_pb.SegmentDone) -> SegmentWorked:
    """Return the segment; its hypothesis is left out."""
    return SegmentWorked(
        message.utterance,
        message.segment,
        message.end_sample,
        message.computation_ms,
        message.queue_ms,
        message.merged_segments,
        message.item_count,
        ends_utterance=message.ends_utterance,
    )


def end_message(event: UtteranceEnded) -> public_pb.EndOfUtterance:
    """Return the message of an utterance's end, without a token."""
    return public_pb.EndOfUtterance(
        utterance=event.utterance,
        start_sample=event.start_sample,
        end_sample=event.end_sample,
        cause=CAUSES[event.cause],
        source_transcript=event.source_transcript,
        acknowledged_samples=event.end_sample,
    )


def read_end(message: public_pb.EndOfUtterance) -> UtteranceEnded:
    """Return the end of an utterance."""
    return UtteranceEnded(
        message.utterance,
        message.start_sample,
        message.end_sample,
        _CAUSE_NAMES[message.cause],
        message.source_transcript,
    )


def totals_message(totals: SessionTotals) -> public_pb.Summary:
    """Return a session's totals."""
    return public_pb.Summary(
        audio_samples=totals.audio_samples,
        item_count=totals.item_count,
        word_count=totals.word_count,
        utterance_count=totals.utterance_count,
        segment_count=totals.segment_count,
        merged_segments=totals.merged_count,
        computation_ms=totals.computation_ms,
        guards_hit=totals.guards_hit,
        replays=totals.replay_count,
    )


def read_totals(message: public_pb.Summary) -> SessionTotals:
    """Return a session's totals."""
    return SessionTotals(
        message.audio_samples,
        message.item_count,
        message.word_count,
        message.utterance_count,
        message.segment_count,
        message.merged_segments,
        message.computation_ms,
        dict(message.guards_hit),
        message.replays,
    )


def stages_message(stages: StageTimings, audio_wait_ms: float = 0.0) -> public_pb.StageTimings:
    """Return where a word's time went."""
    return public_pb.StageTimings(**asdict(stages), audio_wait_ms=audio_wait_ms)


def read_stages(message: public_pb.StageTimings) -> StageTimings:
    """Return where a word's time went."""
    names = [field.name for field in fields(StageTimings)]
    return StageTimings(**{name: getattr(message, name) for name in names})
