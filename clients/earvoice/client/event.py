"""A translation's events, read from the server's responses.

All times are milliseconds of audio or of wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.client.errors import ProtocolError
from earvoice.client.model_description import ModelDescription, read_fields, read_model
from earvoice.client.options import TranslationOptions, read_config
from earvoice.runtime.audio_format import AudioFormat

ElapsedClock = Literal["live", "true"]
UtteranceEndCause = Literal["pause", "forced", "end_of_audio", "other"]
"""`other` is one that only a newer server knows."""

_CLOCKS: dict[int, ElapsedClock] = {
    api.ELAPSED_CLOCK_LIVE: "live",
    api.ELAPSED_CLOCK_TRUE: "true",
}
_CAUSES: dict[int, UtteranceEndCause] = {
    api.UTTERANCE_END_CAUSE_PAUSE: "pause",
    api.UTTERANCE_END_CAUSE_FORCED: "forced",
    api.UTTERANCE_END_CAUSE_END_OF_AUDIO: "end_of_audio",
}


@dataclass(frozen=True)
class StageTimings:
    """Where the time between the arrival of a word's segment and its release went.

    All parts but ``audio_wait_ms`` add up to ``total_ms`` within 1 ms; the fields are those of
    the message of the same name.
    """

    total_ms: float
    merge_wait_ms: float
    previous_segment_wait_ms: float
    encoder_queue_ms: float
    encoder_compute_ms: float
    encoder_network_ms: float
    decoder_queue_ms: float
    decoder_compute_ms: float
    decoder_network_ms: float
    decision_ms: float
    word_hold_ms: float
    audio_wait_ms: float


@dataclass(frozen=True)
class Started:
    """The session has begun; audio is sent from here on.

    Attributes:
        options: the effective choices, every default filled in.
        policy_name: of the effective decision policy.
        elapsed_clock: the clock of every ``elapsed_ms``: wall clock, or computation replayed on
            a machine that is never late for the audio.
        next_sample: position from which to send audio.
    """

    session_id: str
    model: ModelDescription
    options: TranslationOptions
    policy_name: str
    server_version: str
    elapsed_clock: ElapsedClock
    next_sample: int

    @property
    def source_language(self) -> str:
        """The language that is spoken."""
        return self.options.source_language or self.model.source_language


@dataclass(frozen=True)
class CommittedWord:
    """A word, or a later piece of the word before. It is never changed or taken back.

    Attributes:
        text: without surrounding blanks.
        starts_word: whether a space belongs before it.
        utterance: from 0.
        delay_ms: audio received by the server when it was released.
        elapsed_ms: from the first sample to its release, on the session's clock.
        received_ms: wall clock from the first sample to its arrival here.
        confidence: how likely the word is to be right, 0 to 1: of words with this confidence, that
            share is right, as far as the model was calibrated. 1 if the server does not send it.
    """

    text: str
    starts_word: bool
    target_language: str
    utterance: int
    source_start_ms: float
    source_end_ms: float
    delay_ms: float
    elapsed_ms: float
    received_ms: float
    stage_timings: StageTimings | None = None
    confidence: float = 1.0

    @property
    def live_lag_ms(self) -> float:
        """How long after the end of its audio the word arrived here (paced audio only)."""
        return self.received_ms - self.source_end_ms

    @property
    def client_network_ms(self) -> float:
        """Arrival here minus release by the server: meaningful on the live clock only."""
        return self.received_ms - self.elapsed_ms


@dataclass(frozen=True)
class Committed:
    """Words that are released together.

    Attributes:
        acknowledged_samples: audio before this position is never needed again.
    """

    words: tuple[CommittedWord, ...]
    acknowledged_samples: int
    resume_token: bytes


@dataclass(frozen=True)
class Tentative:
    """The tail of the newest hypothesis, which may still change."""

    text: str
    target_language: str
    utterance: int


@dataclass(frozen=True)
class SegmentDone:
    """A segment is done, with words or without: the heartbeat.

    Attributes:
        utterance: from 0.
        segment: within the utterance, from 1.
        end_ms: where it ends in the audio.
        queue_ms: time spent waiting for engines.
        merged_segments: grid segments merged into it beyond the first.
        hypothesis_tokens: if asked for, token ids of the segment's hypothesis, with the forced
            prefix but without the end of sentence; empty when nothing was decoded.
        ends_utterance: the utterance ends with it: ``EndOfUtterance`` follows.
    """

    utterance: int
    segment: int
    end_ms: float
    computation_ms: float
    queue_ms: float
    merged_segments: int
    item_count: int
    hypothesis_tokens: tuple[int, ...] = ()
    prefix_token_count: int = 0
    committed_token_count: int = 0
    ends_utterance: bool = False


@dataclass(frozen=True)
class NotUnderstood:
    """Speech that was not understood: none of its words was released."""

    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class EndOfUtterance:
    """Everything of an utterance has been released; the next begins where it ended.

    Attributes:
        utterance: from 0.
        resume_token: to resume from here; empty when the server gives none.
        not_understood: the span whose words were held back until its end; None if none were.
    """

    utterance: int
    start_ms: float
    end_ms: float
    cause: UtteranceEndCause
    source_transcript: str
    acknowledged_samples: int = 0
    resume_token: bytes = b""
    not_understood: NotUnderstood | None = None


@dataclass(frozen=True)
class GoAway:
    """This replica is going away; the session runs on until the grace has passed."""

    resume_token: bytes
    grace_ms: float


@dataclass(frozen=True)
class Reconnected:
    """The session was lost, or its server is leaving, and continues elsewhere: nothing is missing.

    Attributes:
        gap_ms: from when the loss was noticed until the session continued.
        attempt_count: attempts that this took, 1 or more.
    """

    reason: str
    gap_ms: float
    attempt_count: int
    session_id: str


@dataclass(frozen=True)
class Summary:
    """The session ended well; the last event.

    Attributes:
        merged_segments: grid segments merged into others.
        guards_hit: how often each guard cut a commit, by its name.
        replays: how often the server lost an encoder or decoder and redid its work elsewhere.
        utterances_not_understood: how many of the utterances were not understood.
    """

    audio_ms: float
    item_count: int
    word_count: int
    utterance_count: int
    segment_count: int
    merged_segments: int
    computation_ms: float
    guards_hit: Mapping[str, int]
    replays: int = 0
    utterances_not_understood: int = 0


TranslationEvent = (
    Started | Committed | Tentative | SegmentDone | EndOfUtterance | GoAway | Reconnected | Summary
)


def join_words(words: Sequence[CommittedWord]) -> str:
    """Return words as one text; a later piece of a word follows it without a space."""
    return "".join(f" {word.text}" if word.starts_word else word.text for word in words).strip()


class EventReader:
    """Reads the responses of one session, in order.

    Args:
        received_ms: wall clock since the first sample, read when a response has arrived.
        last_seq: of a resumed session, the number of the response that its token came with.
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

    def read(self, response: api.StreamingTranslateResponse) -> TranslationEvent | None:
        """Return the event; None for one that only a newer server's clients know."""
        kind = response.WhichOneof("message")
        self._check_order(response.seq, kind)
        self.last_seq += 1
        if kind is None:
            return None
        self._ended = kind == "summary"
        return self._readers[kind](response)

    def check_end(self) -> None:
        """Check that the stream may end with status OK here."""
        if not self._ended:
            raise ProtocolError("the server ended the stream without a summary")

    def _check_order(self, seq: int, kind: str | None) -> None:
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
            options = read_config(started.config, is_effective=True)
        except ValueError as error:
            raise ProtocolError(f"in the effective config, {error}") from error
        return Started(
            session_id=started.session_id,
            model=read_model(started.model),
            options=options,
            policy_name=options.policy.name if options.policy else "",
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
            stage_timings=(
                read_fields(StageTimings, item.stage_timings)
                if item.HasField("stage_timings")
                else None
            ),
            confidence=item.confidence if item.HasField("confidence") else 1.0,
        )

    def _read_tentative(self, response: api.StreamingTranslateResponse) -> Tentative:
        tail = response.tentative
        return Tentative(tail.text, tail.target_language_code, tail.utterance)

    def _read_segment(self, response: api.StreamingTranslateResponse) -> SegmentDone:
        done = response.segment_done
        return read_fields(
            SegmentDone,
            done,
            end_ms=self._position_ms(done.end_sample),
            hypothesis_tokens=tuple(done.hypothesis_tokens),
        )

    def _read_utterance(self, response: api.StreamingTranslateResponse) -> EndOfUtterance:
        end = response.end_of_utterance
        if not end.cause:
            raise ProtocolError("an utterance's end has no cause")
        return EndOfUtterance(
            utterance=end.utterance,
            start_ms=self._position_ms(end.start_sample),
            end_ms=self._position_ms(end.end_sample),
            cause=_CAUSES.get(end.cause, "other"),
            source_transcript=end.source_transcript,
            not_understood=NotUnderstood(
                self._position_ms(end.not_understood.start_sample),
                self._position_ms(end.not_understood.end_sample),
            )
            if end.HasField("not_understood")
            else None,
            acknowledged_samples=end.acknowledged_samples,
            resume_token=end.resume_token,
        )

    def _read_go_away(self, response: api.StreamingTranslateResponse) -> GoAway:
        return GoAway(response.go_away.resume_token, response.go_away.grace.ToMilliseconds())

    def _read_summary(self, response: api.StreamingTranslateResponse) -> Summary:
        summary = response.summary
        return read_fields(
            Summary,
            summary,
            audio_ms=self._position_ms(summary.audio_samples),
            guards_hit=dict(summary.guards_hit),
        )
