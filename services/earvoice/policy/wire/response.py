"""A session's events as the client's messages."""

from __future__ import annotations

from dataclasses import asdict

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.policy.endpoint import EndCause
from earvoice.policy.event import (
    Event,
    ReleasedItem,
    ReplicaLeaving,
    SegmentWorked,
    SessionTotals,
    TailChanged,
    UtteranceEnded,
    WordsReleased,
)
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.check import milliseconds

Response = public_pb.StreamingTranslateResponse

CAUSES = {
    EndCause.PAUSE: public_pb.UTTERANCE_END_CAUSE_PAUSE,
    EndCause.FORCED: public_pb.UTTERANCE_END_CAUSE_FORCED,
    EndCause.END_OF_AUDIO: public_pb.UTTERANCE_END_CAUSE_END_OF_AUDIO,
}


class ResponseWriter:
    """Numbers and writes one session's responses.

    Args:
        options: what the stream asked for.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._seq = 0

    def started(self, message: public_pb.SessionStarted) -> Response:
        """Return the first response."""
        return Response(seq=self._next_seq(), session_started=message)

    def response(self, event: Event) -> Response:
        """Return the next response."""
        response = Response(seq=self._next_seq())
        match event:
            case WordsReleased():
                response.committed.CopyFrom(self._committed(event))
            case TailChanged():
                response.tentative.CopyFrom(
                    public_pb.Tentative(
                        text=event.text,
                        target_language_code=self._options.target_language_code,
                        utterance=event.utterance,
                    )
                )
            case SegmentWorked():
                response.segment_done.CopyFrom(_segment_done(event))
            case UtteranceEnded():
                response.end_of_utterance.CopyFrom(_end_of_utterance(event))
            case ReplicaLeaving():
                grace = milliseconds(int(event.grace_s * 1000))
                response.go_away.CopyFrom(public_pb.GoAway(grace=grace))
            case SessionTotals():
                response.summary.CopyFrom(_summary(event))
        return response

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _committed(self, event: WordsReleased) -> public_pb.Committed:
        return public_pb.Committed(
            items=[self._item(item) for item in event.items],
            acknowledged_samples=event.acknowledged_samples,
        )

    def _item(self, item: ReleasedItem) -> public_pb.CommittedItem:
        message = public_pb.CommittedItem(
            text=item.text,
            starts_word=item.starts_word,
            target_language_code=self._options.target_language_code,
            utterance=item.utterance,
            source_start_sample=item.source_start_sample,
            source_end_sample=item.source_end_sample,
            delay_samples=item.delay_samples,
            elapsed_ms=item.elapsed_ms,
        )
        if self._options.sends_stage_timings:
            rate = self._options.audio_format.sample_rate_hertz
            wait_ms = (item.delay_samples - item.source_end_sample) * 1000 / rate
            message.stage_timings.CopyFrom(
                public_pb.StageTimings(**asdict(item.stages), audio_wait_ms=wait_ms)
            )
        return message


def _segment_done(event: SegmentWorked) -> public_pb.SegmentDone:
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


def _end_of_utterance(event: UtteranceEnded) -> public_pb.EndOfUtterance:
    return public_pb.EndOfUtterance(
        utterance=event.utterance,
        start_sample=event.start_sample,
        end_sample=event.end_sample,
        cause=CAUSES[event.cause],
        source_transcript=event.source_transcript,
    )


def _summary(totals: SessionTotals) -> public_pb.Summary:
    return public_pb.Summary(
        audio_samples=totals.audio_samples,
        item_count=totals.item_count,
        word_count=totals.word_count,
        utterance_count=totals.utterance_count,
        segment_count=totals.segment_count,
        merged_segments=totals.merged_count,
        computation_ms=totals.computation_ms,
        guards_hit=totals.guards_hit,
    )
