"""The wire's responses as events, with positions as milliseconds."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.client.errors import ProtocolError
from earvoice.client.event import (
    Committed,
    CommittedWord,
    EndOfUtterance,
    GoAway,
    SegmentDone,
    StageTimings,
    Started,
    Summary,
    Tentative,
    TranslationEvent,
)
from earvoice.client.model_description import read_model
from earvoice.client.session_config import read_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from earvoice.client.audio_format import AudioFormat
    from earvoice.client.event import ElapsedClock, UtteranceEndCause

_CLOCKS: dict[int, ElapsedClock] = {
    api.ELAPSED_CLOCK_LIVE: "live",
    api.ELAPSED_CLOCK_TRUE: "true",
}
_CAUSES: dict[int, UtteranceEndCause] = {
    api.UTTERANCE_END_CAUSE_PAUSE: "pause",
    api.UTTERANCE_END_CAUSE_FORCED: "forced",
    api.UTTERANCE_END_CAUSE_END_OF_AUDIO: "end_of_audio",
}


class EventReader:
    """Reads the responses of one session, in order.

    Args:
        audio: format of the session's audio; positions are counted at its rate.
        received_ms: wall clock since the first sample, read when a response has arrived.
        last_seq: of a session that goes on, the number of the response that its token came with.

    Attributes:
        last_seq: number of the response read last.
    """

    def __init__(
        self, audio: AudioFormat, received_ms: Callable[[], float], last_seq: int = 0
    ) -> None:
        self._position_ms = audio.position_ms
        self._received_ms = received_ms
        self._first_seq = last_seq + 1
        self.last_seq = last_seq
        self._ended = False
        self._readers: dict[str, Callable[[api.StreamingTranslateResponse], TranslationEvent]] = {
            "session_started": self._read_started,
            "committed": self._read_committed,
            "tentative": self._read_tentative,
            "segment_done": self._read_segment,
            "end_of_utterance": self._read_utterance,
            "go_away": self._read_go_away,
            "summary": self._read_summary,
        }

    def read(self, response: api.StreamingTranslateResponse) -> TranslationEvent:
        """Return the event of a response.

        Raises:
            ProtocolError: the response is out of order, empty, or of a kind this client does not
                know.
        """
        kind = response.WhichOneof("message")
        self._check_order(response.seq, kind)
        self.last_seq += 1
        self._ended = kind == "summary"
        return self._readers[kind or ""](response)

    def check_end(self) -> None:
        """Check that the stream may end with status OK here.

        Raises:
            ProtocolError: no summary has come.
        """
        if not self._ended:
            raise ProtocolError("the server ended the stream without a summary")

    def _check_order(self, seq: int, kind: str | None) -> None:
        if kind not in self._readers:
            raise ProtocolError(f"response {seq} carries no message that this client knows")
        if seq != self.last_seq + 1:
            raise ProtocolError(f"response {self.last_seq + 1} expected, but {seq} came")
        if (seq == self._first_seq) != (kind == "session_started"):
            raise ProtocolError(f"response {seq} is {kind}; session_started comes first, and once")
        if self._ended:
            raise ProtocolError(f"response {seq} came after the summary")

    def _read_started(self, response: api.StreamingTranslateResponse) -> Started:
        started = response.session_started
        if started.elapsed_clock not in _CLOCKS:
            raise ProtocolError(f"elapsed_clock = {started.elapsed_clock} is not known")
        try:
            options = read_config(started.config)
        except ValueError as error:
            raise ProtocolError(f"in the effective config, {error}") from error
        return Started(
            session_id=started.session_id,
            model=read_model(started.model),
            options=options,
            policy_name=started.config.policy.WhichOneof("policy") or "",
            server_version=started.server_version,
            elapsed_clock=_CLOCKS[started.elapsed_clock],
            next_sample=started.next_sample,
        )

    def _read_committed(self, response: api.StreamingTranslateResponse) -> Committed:
        committed, received_ms = response.committed, self._received_ms()
        return Committed(
            words=tuple(self._read_word(item, received_ms) for item in committed.items),
            acknowledged_samples=committed.acknowledged_samples,
            resume_token=committed.resume_token,
        )

    def _read_word(self, item: api.CommittedItem, received_ms: float) -> CommittedWord:
        return CommittedWord(
            text=item.text,
            starts_word=item.starts_word,
            target_language=item.target_language_code,
            utterance=item.utterance,
            source_start_ms=self._position_ms(item.source_start_sample),
            source_end_ms=self._position_ms(item.source_end_sample),
            delay_ms=self._position_ms(item.delay_samples),
            elapsed_ms=item.elapsed_ms,
            received_ms=received_ms,
            stage_timings=_read_stage_timings(item),
        )

    def _read_tentative(self, response: api.StreamingTranslateResponse) -> Tentative:
        tail = response.tentative
        return Tentative(tail.text, tail.target_language_code, tail.utterance)

    def _read_segment(self, response: api.StreamingTranslateResponse) -> SegmentDone:
        done = response.segment_done
        return SegmentDone(
            utterance=done.utterance,
            segment=done.segment,
            end_ms=self._position_ms(done.end_sample),
            computation_ms=done.computation_ms,
            queue_ms=done.queue_ms,
            merged_segments=done.merged_segments,
            item_count=done.item_count,
            hypothesis_tokens=tuple(done.hypothesis_tokens),
            prefix_token_count=done.prefix_token_count,
            committed_token_count=done.committed_token_count,
            ends_utterance=done.ends_utterance,
        )

    def _read_utterance(self, response: api.StreamingTranslateResponse) -> EndOfUtterance:
        end = response.end_of_utterance
        if end.cause not in _CAUSES:
            raise ProtocolError(f"cause = {end.cause} of an utterance's end is not known")
        return EndOfUtterance(
            utterance=end.utterance,
            start_ms=self._position_ms(end.start_sample),
            end_ms=self._position_ms(end.end_sample),
            cause=_CAUSES[end.cause],
            source_transcript=end.source_transcript,
            acknowledged_samples=end.acknowledged_samples,
            resume_token=end.resume_token,
        )

    def _read_go_away(self, response: api.StreamingTranslateResponse) -> GoAway:
        return GoAway(response.go_away.resume_token, response.go_away.grace.ToMilliseconds())

    def _read_summary(self, response: api.StreamingTranslateResponse) -> Summary:
        summary = response.summary
        return Summary(
            audio_ms=self._position_ms(summary.audio_samples),
            item_count=summary.item_count,
            word_count=summary.word_count,
            utterance_count=summary.utterance_count,
            segment_count=summary.segment_count,
            merged_segments=summary.merged_segments,
            computation_ms=summary.computation_ms,
            guards_hit=dict(summary.guards_hit),
            replays=summary.replays,
        )


def _read_stage_timings(item: api.CommittedItem) -> StageTimings | None:
    if not item.HasField("stage_timings"):
        return None
    message = item.stage_timings
    return StageTimings(
        **{field.name: getattr(message, field.name) for field in fields(StageTimings)}
    )
