"""A session's events as messages to its client; resume tokens hold some of them, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.policy.endpoints import EndCause
from earvoice.policy.event import (
    Event,
    ReplicaLeaving,
    SegmentWorked,
    SessionSnapshot,
    SessionTotals,
    TailChanged,
    UtteranceEnded,
    WordsReleased,
)
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.words import StageTimings, Word

Response = public_pb.StreamingTranslateResponse

MakeToken = Callable[[SessionSnapshot, int], bytes]
"""Makes a session's resume token, to go with the message of this number."""

Shape = TypeVar("Shape", SegmentWorked, SessionTotals, StageTimings)


class ResponseWriter:
    """Numbers and writes one session's responses.

    Args:
        make_token: gives an empty token where the session cannot be resumed; None if it never can.
        last_seq: of a resumed session, the number of the message that its token came with.
    """

    def __init__(
        self,
        options: StreamOptions,
        make_token: MakeToken | None = None,
        last_seq: int = 0,
        token: bytes = b"",
    ) -> None:
        self._options = options
        self._rate_hertz = options.audio_format.sample_rate_hz
        self._make_token = make_token
        self._seq = last_seq
        self._newest_token = token

    def started(self, message: public_pb.SessionStarted) -> Response:
        self._seq += 1
        return Response(seq=self._seq, session_started=message)

    def response(self, event: Event) -> Response:
        self._seq += 1
        response = Response(seq=self._seq)
        match event:
            case WordsReleased():
                for word in event.items:
                    self._write_word(word, response.committed)
                response.committed.acknowledged_samples = event.acknowledged_samples
                response.committed.resume_token = self._token(event.snapshot)
            case TailChanged():
                response.tentative.text = event.text
                response.tentative.target_language_code = self._options.target_language_code
                response.tentative.utterance = event.utterance
            case SegmentWorked():
                response.segment_done.CopyFrom(public_pb.SegmentDone(**vars(event)))
            case UtteranceEnded():
                response.end_of_utterance.CopyFrom(end_message(event))
                response.end_of_utterance.resume_token = self._token(event.snapshot)
            case ReplicaLeaving():
                response.go_away.resume_token = self._newest_token
                response.go_away.grace.FromMilliseconds(int(event.grace_s * 1000))
            case SessionTotals():
                response.summary.CopyFrom(public_pb.Summary(**vars(event)))
        return response

    def _token(self, snapshot: SessionSnapshot | None) -> bytes:
        self._newest_token = b""
        if self._make_token is not None and snapshot is not None:
            self._newest_token = self._make_token(snapshot, self._seq)
        return self._newest_token

    def _write_word(self, word: Word, committed: public_pb.Committed) -> None:
        item = committed.items.add(
            text=word.text,
            starts_word=word.starts_word,
            target_language_code=self._options.target_language_code,
            utterance=word.utterance,
            source_start_sample=word.source_start_sample,
            source_end_sample=word.source_end_sample,
            delay_samples=word.delay_samples,
            elapsed_ms=word.elapsed_ms,
            confidence=word.confidence,
        )
        if self._options.sends_stage_timings:
            wait_ms = (word.delay_samples - word.source_end_sample) * 1000 / self._rate_hertz
            item.stage_timings.CopyFrom(stages_message(word.stages, wait_ms))


CAUSES: Mapping[EndCause, Any] = {
    "pause": public_pb.UTTERANCE_END_CAUSE_PAUSE,
    "forced": public_pb.UTTERANCE_END_CAUSE_FORCED,
    "end_of_audio": public_pb.UTTERANCE_END_CAUSE_END_OF_AUDIO,
}
_CAUSE_NAMES = {number: cause for cause, number in CAUSES.items()}


def end_message(event: UtteranceEnded) -> public_pb.EndOfUtterance:
    message = public_pb.EndOfUtterance(
        utterance=event.utterance,
        start_sample=event.start_sample,
        end_sample=event.end_sample,
        cause=CAUSES[event.cause],
        source_transcript=event.source_transcript,
        acknowledged_samples=event.end_sample,
    )
    if event.not_understood is not None:
        start_sample, end_sample = event.not_understood
        message.not_understood.start_sample = start_sample
        message.not_understood.end_sample = end_sample
    return message


def read_end(message: public_pb.EndOfUtterance) -> UtteranceEnded:
    return UtteranceEnded(
        message.utterance,
        message.start_sample,
        message.end_sample,
        _CAUSE_NAMES[message.cause],
        message.source_transcript,
        (message.not_understood.start_sample, message.not_understood.end_sample)
        if message.HasField("not_understood")
        else None,
    )


def stages_message(stages: StageTimings, audio_wait_ms: float = 0.0) -> public_pb.StageTimings:
    return public_pb.StageTimings(**vars(stages), audio_wait_ms=audio_wait_ms)


def read_as(shape: type[Shape], message: Any, **changes: object) -> Shape:
    """Return a dataclass with the values of a message's fields, except for ``changes``."""
    return shape(**{field.name: getattr(message, field.name) for field in fields(shape)} | changes)
