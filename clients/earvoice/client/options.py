"""What a caller can choose for one translation, and how it is written on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal, get_args

from google.protobuf.duration_pb2 import Duration

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.api.v1 import types_pb2 as types
from earvoice.policies.message import read_any_policy, told_policy, write_policy
from earvoice.policies.registry import POLICIES, AnyPolicy
from earvoice.runtime.audio_format import AudioEncoding, AudioFormat
from earvoice.runtime.parameter import ParameterError

CatchUp = Literal["merge", "every-segment"]
CommitUnit = Literal["word", "token", "followed-word"]

# Each choice's names here and its numbers on the wire.
_ENCODINGS: Mapping[AudioEncoding, Any] = {
    name: types.AudioEncoding.Value(f"AUDIO_ENCODING_{name.upper()}")
    for name in get_args(AudioEncoding)
}
_CATCH_UPS: dict[CatchUp | None, Any] = {
    None: api.CATCH_UP_UNSPECIFIED,
    "merge": api.CATCH_UP_MERGE,
    "every-segment": api.CATCH_UP_EVERY_SEGMENT,
}
_COMMIT_UNITS: dict[CommitUnit | None, Any] = {
    None: api.COMMIT_UNIT_UNSPECIFIED,
    "word": api.COMMIT_UNIT_WORD,
    "token": api.COMMIT_UNIT_TOKEN,
    "followed-word": api.COMMIT_UNIT_FOLLOWED_WORD,
}


@dataclass(frozen=True)
class Endpointing:
    """Where utterances end inside a stream; None takes the server's default.

    Attributes:
        pause_ms: a pause this long ends an utterance, 200 to 5000.
        max_utterance_ms: speech without a pause is cut before this, 5000 to 30000.
        pause_in_sentence_ms: where the text ends within a sentence, a pause must be this long
            instead, `pause_ms` to 10000.
    """

    disabled: bool = False
    pause_ms: int | None = None
    max_utterance_ms: int | None = None
    pause_in_sentence_ms: int | None = None


@dataclass(frozen=True)
class HistorySelection:
    """What is kept of an utterance that never ends (StreamAtt, Papi 2024).

    Attributes:
        words: how many of the last words, 1 to 200; None keeps what follows the last sentence end.
    """

    words: int | None = None


@dataclass(frozen=True)
class TranslationUpdate:
    """A change in mid-stream; fields that are None stay as they were.

    It takes effect with the first segment that ends after the audio sent before it.
    """

    policy: AnyPolicy | None = None
    segment_ms: int | None = None
    beam_size: int | None = None

    def __post_init__(self) -> None:
        _check_policy(self.policy)


@dataclass(frozen=True)
class TranslationOptions:
    """One translation's choices; None or empty takes the model's or the server's default.

    Attributes:
        target_languages: BCP-47 tags; servers take exactly one today.
        segment_ms: length of a segment, 200 to 10000.
        initial_wait_ms: extra length of an utterance's first segment, 0 to 10000.
        catch_up: what to do when the machine falls behind: merge segments, or decide every one.
        interim: ask for the tail that may still change.
        disable_guards: switch off the server's guards, to reproduce released code.
        paced: the audio is sent in real time, so that time zero is when its first sample existed;
            False for a recording sent at full speed (``received_ms`` then counts from when the
            first message was sent).
        beam_size: hypotheses that the decoder follows, 1 to 16; 1 is greedy search.
        history_selection: what is kept of an utterance that never ends; None keeps all.
        target_lag_ms: mean word lag that the server is to hold by adjusting the policy's own
            parameter, 500 to 20000.
        min_confidence: mean confidence that an utterance's words must reach before they are
            released, 0 to 1; for a translation, that of the source words, if the model writes
            them. 0 releases all, None takes the model's.
        reconnect_limit_s: how long to try to resume a lost session; 0 never tries.
        stall_timeout_s: how late an answer may be before the server is asked for its health.
    """

    target_languages: tuple[str, ...]
    audio: AudioFormat = field(default_factory=AudioFormat)
    source_language: str = ""
    model: str = ""
    policy: AnyPolicy | None = None
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
    min_confidence: float | None = None
    reconnect_limit_s: float = 60.0
    stall_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        if isinstance(self.target_languages, str):
            allowed = f"a tuple of tags, such as ({self.target_languages!r},)"
            raise ParameterError("target_languages", self.target_languages, allowed)
        _check_policy(self.policy)
        for name, choices in (("catch_up", _CATCH_UPS), ("commit_unit", _COMMIT_UNITS)):
            value = getattr(self, name)
            if value not in choices:
                raise ParameterError(name, value, ", ".join(filter(None, choices)))
        for name in ("segment_ms", "initial_wait_ms", "target_lag_ms", "beam_size"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Integral):
                raise ParameterError(name, value, "a whole number")
        # On the wire 0 is the same as no choice.
        if self.beam_size == 0:
            raise ParameterError("beam_size", 0, "1 to 16")
        if self.stall_timeout_s <= 0:
            raise ParameterError("stall_timeout_s", self.stall_timeout_s, "more than 0")


def write_config(options: TranslationOptions, resume_token: bytes = b"") -> api.StreamingConfig:
    """Return the first message of a session; what the options do not choose stays unset."""
    return api.StreamingConfig(
        audio_encoding=_ENCODINGS[options.audio.encoding],
        sample_rate_hertz=options.audio.sample_rate_hz,
        audio_channel_count=options.audio.channel_count,
        source_language_code=options.source_language,
        target_language_codes=options.target_languages,
        model=options.model,
        policy=write_policy(options.policy) if options.policy else None,
        segment_duration=_duration(options.segment_ms),
        initial_wait=_duration(options.initial_wait_ms),
        enable_interim_results=options.interim,
        enable_source_transcript=options.transcript,
        enable_stage_timings=options.stage_timings,
        disable_guards=options.disable_guards,
        beam_size=options.beam_size or 0,
        enable_hypotheses=options.hypotheses,
        target_lag=_duration(options.target_lag_ms),
        history_selection=_write_history(options.history_selection),
        min_confidence=options.min_confidence,
        resume_token=resume_token,
        catch_up=_CATCH_UPS[options.catch_up],
        commit_unit=_COMMIT_UNITS[options.commit_unit],
        endpointing=_write_endpointing(options.endpointing),
        trace_context=(
            types.TraceContext(traceparent=options.traceparent) if options.traceparent else None
        ),
    )


def read_config(config: api.StreamingConfig, *, is_effective: bool = False) -> TranslationOptions:
    """Return a config's options (``paced`` is not on the wire).

    Args:
        is_effective: the config comes from a server, so its policy may have values not allowed
            here.
    """
    read_policy = told_policy if is_effective else read_any_policy
    return TranslationOptions(
        target_languages=tuple(config.target_language_codes),
        audio=AudioFormat(
            _name_of(config.audio_encoding, _ENCODINGS),
            config.sample_rate_hertz,
            config.audio_channel_count or 1,
        ),
        source_language=config.source_language_code,
        model=config.model,
        policy=read_policy(config.policy, POLICIES),
        segment_ms=_milliseconds(config, "segment_duration"),
        initial_wait_ms=_milliseconds(config, "initial_wait"),
        catch_up=_name_of(config.catch_up, _CATCH_UPS),
        commit_unit=_name_of(config.commit_unit, _COMMIT_UNITS),
        endpointing=Endpointing(
            config.endpointing.disabled,
            _milliseconds(config.endpointing, "pause"),
            _milliseconds(config.endpointing, "max_utterance"),
            _milliseconds(config.endpointing, "pause_in_sentence"),
        ),
        interim=config.enable_interim_results,
        transcript=config.enable_source_transcript,
        stage_timings=config.enable_stage_timings,
        disable_guards=config.disable_guards,
        traceparent=config.trace_context.traceparent,
        beam_size=config.beam_size or None,
        history_selection=_read_history(config),
        hypotheses=config.enable_hypotheses,
        target_lag_ms=_milliseconds(config, "target_lag"),
        min_confidence=config.min_confidence if config.HasField("min_confidence") else None,
    )


def write_update(update: TranslationUpdate) -> api.StreamingUpdate:
    """Return a change as a message; what it does not change stays unset."""
    return api.StreamingUpdate(
        policy=write_policy(update.policy) if update.policy else None,
        segment_duration=_duration(update.segment_ms),
        beam_size=update.beam_size or 0,
    )


def read_update(message: api.StreamingUpdate) -> TranslationUpdate:
    return TranslationUpdate(
        policy=read_any_policy(message.policy, POLICIES) if message.HasField("policy") else None,
        segment_ms=_milliseconds(message, "segment_duration"),
        beam_size=message.beam_size or None,
    )


def _check_policy(policy: AnyPolicy | None) -> None:
    if isinstance(policy, str):
        raise ParameterError("policy", policy, f"a policy, such as parse_policy({policy!r})")


def _write_history(history: HistorySelection | None) -> api.HistorySelection | None:
    if history is None:
        return None
    if history.words is None:
        return api.HistorySelection(last_sentence=True)
    return api.HistorySelection(words=history.words)


def _read_history(config: api.StreamingConfig) -> HistorySelection | None:
    match config.history_selection.WhichOneof("keep"):
        case "words":
            return HistorySelection(config.history_selection.words)
        case "last_sentence" if config.history_selection.last_sentence:
            return HistorySelection()
    if config.HasField("history_selection"):
        raise ValueError("history_selection: allowed: words, or last_sentence = true")
    return None


def _write_endpointing(endpointing: Endpointing) -> api.Endpointing | None:
    if endpointing == Endpointing():
        return None
    return api.Endpointing(
        disabled=endpointing.disabled,
        pause=_duration(endpointing.pause_ms),
        max_utterance=_duration(endpointing.max_utterance_ms),
        pause_in_sentence=_duration(endpointing.pause_in_sentence_ms),
    )


def _duration(value_ms: int | None) -> Duration | None:
    if value_ms is None:
        return None
    duration = Duration()
    duration.FromMilliseconds(value_ms)
    return duration


def _milliseconds(message: Any, field: str) -> int | None:
    if not message.HasField(field):
        return None
    value: int = getattr(message, field).ToMilliseconds()
    return value


def _name_of(number: int, names: Mapping[Any, int]) -> Any:
    return next((name for name, value in names.items() if value == number), None)
