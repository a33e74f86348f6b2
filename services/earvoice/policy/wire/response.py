"""A session's events as the client's messages."""

from __future__ import annotations

from collections.abc import Callable

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
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
from earvoice.policy.resume.snapshot import SessionSnapshot
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.check import milliseconds
from earvoice.policy.wire.event_message import (
    end_message,
    segment_message,
    stages_message,
    totals_message,
)

Response = public_pb.StreamingTranslateResponse

MakeToken = Callable[[SessionSnapshot, int], bytes]
"""Makes a resume token of a session, to go with the message of a number."""


def no_token(snapshot: SessionSnapshot, seq: int) -> bytes:
    """Return nothing: the session cannot be resumed."""
    del snapshot, seq
    return b""


class ResponseWriter:
    """Numbers and writes one session's responses.

    Args:
        options: what the stream asked for.
        make_token: an empty token means that the session cannot be resumed there.
        last_seq: of a session that goes on, the number of the message that its token came with.
        token: of a session that goes on.
    """

    def __init__(
        self,
        options: StreamOptions,
        make_token: MakeToken = no_token,
        last_seq: int = 0,
        token: bytes = b"",
    ) -> None:
        self._options = options
        self._make_token = make_token
        self._seq = last_seq
        self._newest_token = token

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
                response.segment_done.CopyFrom(segment_message(event))
            case UtteranceEnded():
                response.end_of_utterance.CopyFrom(end_message(event))
                response.end_of_utterance.resume_token = self._token(event.snapshot)
            case ReplicaLeaving():
                grace = milliseconds(int(event.grace_s * 1000))
                response.go_away.CopyFrom(
                    public_pb.GoAway(resume_token=self._newest_token, grace=grace)
                )
            case SessionTotals():
                response.summary.CopyFrom(totals_message(event))
        return response

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _token(self, snapshot: SessionSnapshot | None) -> bytes:
        self._newest_token = self._make_token(snapshot, self._seq) if snapshot else b""
        return self._newest_token

    def _committed(self, event: WordsReleased) -> public_pb.Committed:
        return public_pb.Committed(
            items=[self._item(item) for item in event.items],
            acknowledged_samples=event.acknowledged_samples,
            resume_token=self._token(event.snapshot),
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
            message.stage_timings.CopyFrom(stages_message(item.stages, wait_ms))
        return message
