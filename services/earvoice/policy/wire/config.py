"""The first message of a stream: checked, and sent back with every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.api.v1 import types_pb2
from earvoice.policy.stream_options import (
    AudioEncoding,
    AudioFormat,
    Endpointing,
    HistorySelection,
    StreamOptions,
)
from earvoice.policy.wire.check import check_range, duration_ms, milliseconds
from earvoice.policy.wire.consistency import check_consistency
from earvoice.policy.wire.decision_policy import policy_message, policy_parameters
from earvoice.policy.wire.decoding import (
    attention_of,
    checked_beam_size,
    checked_initial_wait_ms,
    checked_segment_ms,
)
from earvoice.policy.wire.model_fit import check_model_fit
from earvoice.policy.words import CommitUnit
from earvoice.runtime.errors import (
    InvalidFieldError,
    LanguageNotSupportedError,
    ModelNotFoundError,
    UnimplementedFieldError,
    shown,
)

Config = public_pb.StreamingConfig
Model = types_pb2.ModelDescription

ENCODINGS = {
    types_pb2.AUDIO_ENCODING_LINEAR16: AudioEncoding.LINEAR16,
    types_pb2.AUDIO_ENCODING_FLOAT32: AudioEncoding.FLOAT32,
    types_pb2.AUDIO_ENCODING_MULAW: AudioEncoding.MULAW,
    types_pb2.AUDIO_ENCODING_ALAW: AudioEncoding.ALAW,
}
ENCODING_NUMBERS = {encoding: number for number, encoding in ENCODINGS.items()}
COMMIT_UNIT_NUMBERS = {
    CommitUnit.WORD: public_pb.COMMIT_UNIT_WORD,
    CommitUnit.TOKEN: public_pb.COMMIT_UNIT_TOKEN,
    CommitUnit.FOLLOWED_WORD: public_pb.COMMIT_UNIT_FOLLOWED_WORD,
}
COMMIT_UNITS: Mapping[int, CommitUnit] = {
    public_pb.COMMIT_UNIT_UNSPECIFIED: CommitUnit.WORD,
    **{number: unit for unit, number in COMMIT_UNIT_NUMBERS.items()},
}

Choice = TypeVar("Choice")


def stream_options(config: Config, model: Model) -> StreamOptions:
    """Check a config and fill in the defaults.

    Raises:
        InvalidFieldError: a value is not allowed.
        LanguageNotSupportedError: the model does not speak a language.
        ModelNotFoundError: no such model is served.
        UnimplementedFieldError: a field is reserved for a later version.
    """
    if config.model and config.model != model.name:
        raise ModelNotFoundError(
            f"model = {shown(config.model)} is not served; allowed: {model.name!r}",
            allowed=model.name,
        )
    check_language(
        "source_language_code", config.source_language_code, [model.source_language_code]
    )
    parameters = policy_parameters(config.policy, model)
    layer, heads = attention_of(parameters, model)
    segment = config.segment_duration if config.HasField("segment_duration") else None
    wait = config.initial_wait if config.HasField("initial_wait") else None
    options = StreamOptions(
        audio_format=_audio_format(config),
        target_language_code=_target(config, model),
        policy=parameters,
        attention_layer=layer,
        segment_ms=checked_segment_ms(segment, parameters, model.default_segment_ms),
        initial_wait_ms=checked_initial_wait_ms(wait, parameters, 0),
        merges_segments=_choice("catch_up", config.catch_up, {0: True, 1: True, 2: False}),
        commit_unit=_choice("commit_unit", config.commit_unit, COMMIT_UNITS),
        endpointing=_endpointing(config),
        sends_interim_results=config.enable_interim_results,
        sends_source_transcript=config.enable_source_transcript,
        sends_stage_timings=config.enable_stage_timings,
        uses_guards=not config.disable_guards,
        beam_size=checked_beam_size(config.beam_size, parameters, 1),
        attention_heads=heads,
        history_selection=_history_selection(config),
        sends_hypotheses=config.enable_hypotheses,
        target_lag_ms=_target_lag_ms(config),
    )
    check_consistency(options)
    check_model_fit(options, model)
    return options


def effective_config(options: StreamOptions, model: Model) -> Config:
    """Return the config that says in full what the session will do."""
    config = Config(
        audio_encoding=ENCODING_NUMBERS[options.audio_format.encoding],
        sample_rate_hertz=options.audio_format.sample_rate_hertz,
        audio_channel_count=options.audio_format.channel_count,
        source_language_code=model.source_language_code,
        target_language_codes=[options.target_language_code],
        model=model.name,
        policy=policy_message(options.policy),
        segment_duration=milliseconds(options.segment_ms),
        initial_wait=milliseconds(options.initial_wait_ms),
        catch_up=public_pb.CATCH_UP_MERGE
        if options.merges_segments
        else public_pb.CATCH_UP_EVERY_SEGMENT,
        commit_unit=COMMIT_UNIT_NUMBERS[options.commit_unit],
        endpointing=public_pb.Endpointing(disabled=True),
        enable_interim_results=options.sends_interim_results,
        enable_source_transcript=options.sends_source_transcript,
        enable_stage_timings=options.sends_stage_timings,
        beam_size=options.beam_size,
        disable_guards=not options.uses_guards,
        enable_hypotheses=options.sends_hypotheses,
    )
    if options.endpointing is not None:
        config.endpointing.CopyFrom(
            public_pb.Endpointing(
                pause=milliseconds(options.endpointing.pause_ms),
                max_utterance=milliseconds(options.endpointing.max_utterance_ms),
            )
        )
    if options.target_lag_ms is not None:
        config.target_lag.CopyFrom(milliseconds(options.target_lag_ms))
    history = options.history_selection
    if history is not None and history.word_count is not None:
        config.history_selection.words = history.word_count
    elif history is not None:
        config.history_selection.last_sentence = True
    return config


def check_language(field: str, code: str, allowed: list[str]) -> str:
    """Return the model's tag for a language; ``en-US`` is served by ``en``.

    Raises:
        LanguageNotSupportedError: there is none.
    """
    if not code and len(allowed) == 1:
        return allowed[0]
    for tag in allowed:
        if code.lower() == tag.lower() or code.lower().split("-")[0] == tag.lower():
            return tag
    raise LanguageNotSupportedError(field, code, ", ".join(allowed))


def _target(config: Config, model: Model) -> str:
    codes = list(config.target_language_codes)
    if len(codes) > 1:
        raise UnimplementedFieldError(
            "target_language_codes", f"has {len(codes)} languages; this version takes one a stream"
        )
    allowed = list(model.target_language_codes)
    return check_language("target_language_codes", codes[0] if codes else "", allowed)


def _audio_format(config: Config) -> AudioFormat:
    if config.audio_encoding not in ENCODINGS:
        names = [encoding.name for encoding in ENCODINGS.values()]
        raise InvalidFieldError("audio_encoding", config.audio_encoding, ", ".join(names))
    channels = config.audio_channel_count or 1
    return AudioFormat(
        ENCODINGS[config.audio_encoding],
        check_range("sample_rate_hertz", config.sample_rate_hertz, 8000, 48_000),
        check_range("audio_channel_count", channels, 1, 2),
    )


def _endpointing(config: Config) -> Endpointing | None:
    message, default = config.endpointing, Endpointing()
    if message.disabled:
        return None
    pause_ms, max_ms = default.pause_ms, default.max_utterance_ms
    if message.HasField("pause"):
        pause_ms = duration_ms("endpointing.pause", message.pause, 200, 5000)
    if message.HasField("max_utterance"):
        max_ms = duration_ms("endpointing.max_utterance", message.max_utterance, 5000, 30_000)
    return Endpointing(pause_ms, max_ms)


def _target_lag_ms(config: Config) -> int | None:
    if not config.HasField("target_lag"):
        return None
    return duration_ms("target_lag", config.target_lag, 500, 20_000)


def _history_selection(config: Config) -> HistorySelection | None:
    message = config.history_selection
    match message.WhichOneof("keep"):
        case "words":
            return HistorySelection(check_range("history_selection.words", message.words, 1, 200))
        case "last_sentence" if message.last_sentence:
            return HistorySelection()
        case "last_sentence":
            raise InvalidFieldError("history_selection.last_sentence", False, "true, or unset")  # noqa: FBT003 - the value refused
    if config.HasField("history_selection"):
        raise InvalidFieldError("history_selection", "nothing", "words or last_sentence")
    return None


def _choice(field: str, number: int, meanings: Mapping[int, Choice]) -> Choice:
    if number not in meanings:
        raise InvalidFieldError(field, number, f"one of {sorted(meanings)}")
    return meanings[number]
