"""What a caller can choose for one translation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from earvoice.client.audio_format import AudioFormat

if TYPE_CHECKING:
    from earvoice.client.policy import DecisionPolicy

CatchUp = Literal["merge", "every-segment"]
CommitUnit = Literal["word", "token", "followed-word"]


@dataclass(frozen=True)
class Endpointing:
    """Where utterances end inside a stream; None takes the server's default.

    Attributes:
        disabled: never end an utterance before the audio does.
        pause_ms: a pause this long ends an utterance, 200 to 5000.
        max_utterance_ms: speech without a pause is cut before this, 5000 to 30000.
    """

    disabled: bool = False
    pause_ms: int | None = None
    max_utterance_ms: int | None = None


@dataclass(frozen=True)
class HistorySelection:
    """What is kept of an utterance that goes on without end (StreamAtt, Papi 2024).

    Attributes:
        words: the last so many words, 1 to 200; None keeps what follows the last end of a sentence.
    """

    words: int | None = None


@dataclass(frozen=True)
class TranslationUpdate:
    """A change in mid-stream; what is None stays as it was.

    It holds from the first segment on that ends after the audio sent before it.

    Attributes:
        policy: when to speak.
        segment_ms: length of a segment, 200 to 10000.
        beam_size: hypotheses that the decoder follows, 1 to 16.
    """

    policy: DecisionPolicy | None = None
    segment_ms: int | None = None
    beam_size: int | None = None


@dataclass(frozen=True)
class TranslationOptions:
    """One translation's choices; what is None or empty takes the model's or the server's default.

    Attributes:
        target_languages: BCP-47 tags; servers take exactly one today.
        audio: format of the bytes that will be sent.
        source_language: BCP-47 tag of the language spoken.
        model: the model's name.
        policy: when to speak.
        segment_ms: length of a segment, 200 to 10000.
        initial_wait_ms: by how much the first segment of an utterance is longer, 0 to 10000.
        catch_up: what happens when the machine is late: merge segments, or decide every one.
        commit_unit: what is committed at once.
        endpointing: where utterances end.
        interim: ask for the tail that may still change.
        transcript: ask for the source transcript of each utterance.
        stage_timings: ask where each word's time went.
        disable_guards: switch off the server's guards, to reproduce released code.
        paced: the audio is sent as it comes into being, so that time zero is when its first
            sample existed; False for a recording sent at full speed (``received_ms`` then counts
            from when the first message was sent).
        traceparent: W3C trace context that the session belongs to.
        beam_size: hypotheses that the decoder follows, 1 to 16; 1 is greedy search.
        history_selection: what is kept of an utterance that goes on without end; None keeps all.
        hypotheses: ask for each segment's whole hypothesis, for evaluation.
        target_lag_ms: mean word lag that the server is to hold by moving the policy's own
            parameter, 500 to 20000.
        reconnect_limit_s: how long to try to go on with a session that is lost; 0 never tries.
        stall_timeout_s: how late an answer may be before the server is asked whether it is there.
    """

    target_languages: tuple[str, ...]
    audio: AudioFormat = field(default_factory=AudioFormat)
    source_language: str = ""
    model: str = ""
    policy: DecisionPolicy | None = None
    segment_ms: int | None = None
    initial_wait_ms: int | None = None
    catch_up: CatchUp | None = None
    commit_unit: CommitUnit | None = None
    endpointing: Endpointing = field(default_factory=Endpointing)
    interim: bool = False
    transcript: bool = False
    stage_timings: bool = False
    disable_guards: bool = False
    paced: bool = False
    traceparent: str = ""
    beam_size: int | None = None
    history_selection: HistorySelection | None = None
    hypotheses: bool = False
    target_lag_ms: int | None = None
    reconnect_limit_s: float = 60.0
    stall_timeout_s: float = 5.0
