"""What a translation tells while it runs. All times are milliseconds of audio or of wall clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from earvoice.client.model_description import ModelDescription
    from earvoice.client.options import TranslationOptions

ElapsedClock = Literal["live", "true"]
UtteranceEndCause = Literal["pause", "forced", "end_of_audio"]


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
        session_id: unique, for logs.
        model: the model that serves it.
        options: the effective choices, every default filled in.
        policy_name: name of the effective decision policy.
        server_version: version of the server.
        elapsed_clock: the clock of every ``elapsed_ms``: wall clock, or computation replayed on
            a machine that is never late for the audio.
        next_sample: position from which audio is wanted.
    """

    session_id: str
    model: ModelDescription
    options: TranslationOptions
    policy_name: str
    server_version: str
    elapsed_clock: ElapsedClock
    next_sample: int


@dataclass(frozen=True)
class CommittedWord:
    """A word, or a later piece of the word before. It is never changed or taken back.

    Attributes:
        text: without surrounding blanks.
        starts_word: whether a blank belongs before it.
        target_language: BCP-47 tag.
        utterance: the utterance it belongs to, from 0.
        source_start_ms: where the audio it attends to begins.
        source_end_ms: where that audio ends.
        delay_ms: audio received by the server when it was released.
        elapsed_ms: from the first sample to its release, on the session's clock.
        received_ms: wall clock from the first sample to its arrival here.
        stage_timings: where its time went, if asked for.
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

    @property
    def live_lag_ms(self) -> float:
        """How long after the end of its audio the word arrived here (paced audio only)."""
        return self.received_ms - self.source_end_ms

    @property
    def client_network_ms(self) -> float:
        """Arrival here minus the server's release: meaningful on the live clock only."""
        return self.received_ms - self.elapsed_ms


@dataclass(frozen=True)
class Committed:
    """Words are released together.

    Attributes:
        words: in order.
        acknowledged_samples: audio before this position is never needed again.
        resume_token: token to resume from here; empty when the server gives none.
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
    """A segment has been worked on, words or none: the heartbeat.

    Attributes:
        utterance: from 0.
        segment: within the utterance, from 1.
        end_ms: where it ends in the audio.
        computation_ms: of all services.
        queue_ms: waiting for engines.
        merged_segments: grid segments merged into it beyond the first.
        item_count: items released by it.
        hypothesis_tokens: if asked for, ids of the segment's hypothesis, forced prefix included,
            end of sentence not; empty when nothing was decoded.
        prefix_token_count: how many of them were the forced prefix.
        committed_token_count: how many after the prefix were committed.
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
class EndOfUtterance:
    """Everything of an utterance has been released; the next begins where it ended.

    Attributes:
        utterance: from 0.
        start_ms: where it began.
        end_ms: where it ended.
        cause: why.
        source_transcript: what was heard, if asked for.
        acknowledged_samples: audio before this position is never needed again.
        resume_token: token to resume from here; empty when the server gives none.
    """

    utterance: int
    start_ms: float
    end_ms: float
    cause: UtteranceEndCause
    source_transcript: str
    acknowledged_samples: int = 0
    resume_token: bytes = b""


@dataclass(frozen=True)
class GoAway:
    """This replica is going away; the session runs on until the grace has passed."""

    resume_token: bytes
    grace_ms: float


@dataclass(frozen=True)
class Reconnected:
    """The session was lost, or its server leaves, and it goes on elsewhere: nothing is missing.

    Attributes:
        reason: what had happened.
        gap_ms: from when that was known to when the session went on.
        attempt_count: how often it was tried, 1 or more.
        session_id: of the session from here on, for logs.
    """

    reason: str
    gap_ms: float
    attempt_count: int
    session_id: str


@dataclass(frozen=True)
class Summary:
    """The session ended well; the last event.

    Attributes:
        audio_ms: audio received.
        item_count: items released.
        word_count: words released.
        utterance_count: utterances ended.
        segment_count: segments worked on.
        merged_segments: grid segments merged away.
        computation_ms: of all services.
        guards_hit: how often each guard cut a commit, by its name.
        replays: how often the server lost an encoder or decoder and did its work again elsewhere.
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


TranslationEvent = (
    Started | Committed | Tentative | SegmentDone | EndOfUtterance | GoAway | Reconnected | Summary
)
