"""Options as the wire's ``StreamingConfig``, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from google.protobuf.duration_pb2 import Duration

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.api.v1 import types_pb2 as types
from earvoice.client.audio_format import AudioEncoding, AudioFormat
from earvoice.client.options import (
    CatchUp,
    CommitUnit,
    Endpointing,
    HistorySelection,
    TranslationOptions,
    TranslationUpdate,
)
from earvoice.client.policy_message import read_policy, write_policy

if TYPE_CHECKING:
    from collections.abc import Mapping

# Each choice's names here and its numbers on the wire.
_ENCODINGS: Mapping[AudioEncoding, Any] = {
    name: types.AudioEncoding.Value(f"AUDIO_ENCODING_{name.upper()}")
    for name in get_args(AudioEncoding)
}
_CATCH_UPS: Mapping[CatchUp, Any] = {
    "merge": api.CATCH_UP_MERGE,
    "every-segment": api.CATCH_UP_EVERY_SEGMENT,
}
_COMMIT_UNITS: Mapping[CommitUnit, Any] = {
    "word": api.COMMIT_UNIT_WORD,
    "token": api.COMMIT_UNIT_TOKEN,
    "followed-word": api.COMMIT_UNIT_FOLLOWED_WORD,
}


def write_config(options: TranslationOptions, resume_token: bytes = b"") -> api.StreamingConfig:
    """Return the first message of a session; what the options leave open stays unset."""
    config = api.StreamingConfig(
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
        resume_token=resume_token,
    )
    if options.catch_up:
        config.catch_up = _CATCH_UPS[options.catch_up]
    if options.commit_unit:
        config.commit_unit = _COMMIT_UNITS[options.commit_unit]
    if options.endpointing != Endpointing():
        config.endpointing.CopyFrom(_write_endpointing(options.endpointing))
    if options.traceparent:
        config.trace_context.traceparent = options.traceparent
    return config


def read_config(config: api.StreamingConfig) -> TranslationOptions:
    """Return the options that an effective config stands for (``paced`` is not on the wire).

    Raises:
        ValueError: its audio format is missing or not allowed.
    """
    return TranslationOptions(
        target_languages=tuple(config.target_language_codes),
        audio=AudioFormat(
            _name_of(config.audio_encoding, _ENCODINGS),
            config.sample_rate_hertz,
            config.audio_channel_count or 1,
        ),
        source_language=config.source_language_code,
        model=config.model,
        policy=read_policy(config.policy),
        segment_ms=_milliseconds(config, "segment_duration"),
        initial_wait_ms=_milliseconds(config, "initial_wait"),
        catch_up=_name_of(config.catch_up, _CATCH_UPS),
        commit_unit=_name_of(config.commit_unit, _COMMIT_UNITS),
        endpointing=Endpointing(
            config.endpointing.disabled,
            _milliseconds(config.endpointing, "pause"),
            _milliseconds(config.endpointing, "max_utterance"),
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
    )


def write_update(update: TranslationUpdate) -> api.StreamingUpdate:
    """Return the message of a change; what it leaves open stays unset."""
    return api.StreamingUpdate(
        policy=write_policy(update.policy) if update.policy else None,
        segment_duration=_duration(update.segment_ms),
        beam_size=update.beam_size or 0,
    )


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
        case "last_sentence":
            return HistorySelection()
    return None


def _write_endpointing(endpointing: Endpointing) -> api.Endpointing:
    return api.Endpointing(
        disabled=endpointing.disabled,
        pause=_duration(endpointing.pause_ms),
        max_utterance=_duration(endpointing.max_utterance_ms),
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
    """Return the choice with this number; None for the unset one."""
    return next((name for name, value in names.items() if value == number), None)
