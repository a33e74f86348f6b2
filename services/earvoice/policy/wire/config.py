"""The first message of a stream: checked, and sent back with every default filled in."""

from __future__ import annotations

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.api.v1 import types_pb2
from earvoice.policy.stream_options import (
    AudioEncoding,
    AudioFormat,
    Endpointing,
    StreamOptions,
)
from earvoice.policy.wire.check import check_range, duration_ms, milliseconds
from earvoice.policy.wire.decision_policy import (
    attention_layer,
    policy_message,
    policy_parameters,
)
from earvoice.runtime.errors import (
    InvalidFieldError,
    LanguageNotSupportedError,
    ModelNotFoundError,
    UnimplementedFieldError,
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
            f"model = {config.model!r} is not served; allowed: {model.name!r}", allowed=model.name
        )
    _refuse_reserved(config)
    check_language(
        "source_language_code", config.source_language_code, [model.source_language_code]
    )
    parameters = policy_parameters(config.policy, model)
    options = StreamOptions(
        audio_format=_audio_format(config),
        target_language_code=_target(config, model),
        policy=parameters,
        attention_layer=attention_layer(parameters, model),
        segment_ms=_segment_ms(config, model),
        initial_wait_ms=duration_ms("initial_wait", config.initial_wait, 0, 10_000),
        merges_segments=_choice("catch_up", config.catch_up, {0: True, 1: True, 2: False}),
        commits_words=_choice("commit_unit", config.commit_unit, {0: True, 1: True, 2: False}),
        endpointing=_endpointing(config),
        sends_interim_results=config.enable_interim_results,
        sends_source_transcript=config.enable_source_transcript,
        sends_stage_timings=config.enable_stage_timings,
        uses_guards=not config.disable_guards,
    )
    _check_first_segment(options)
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
        commit_unit=public_pb.COMMIT_UNIT_WORD
        if options.commits_words
        else public_pb.COMMIT_UNIT_TOKEN,
        endpointing=public_pb.Endpointing(disabled=True),
        enable_interim_results=options.sends_interim_results,
        enable_source_transcript=options.sends_source_transcript,
        enable_stage_timings=options.sends_stage_timings,
        beam_size=1,
        disable_guards=not options.uses_guards,
    )
    if options.endpointing is not None:
        config.endpointing.CopyFrom(
            public_pb.Endpointing(
                pause=milliseconds(options.endpointing.pause_ms),
                max_utterance=milliseconds(options.endpointing.max_utterance_ms),
            )
        )
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


def _segment_ms(config: Config, model: Model) -> int:
    if not config.HasField("segment_duration"):
        return model.default_segment_ms
    return duration_ms("segment_duration", config.segment_duration, 200, 10_000)


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


def _check_first_segment(options: StreamOptions) -> None:
    """Refuse an utterance that would have to end within its first segment."""
    first_ms = options.initial_wait_ms + options.segment_ms
    endpointing = options.endpointing
    if endpointing is not None and endpointing.max_utterance_ms < first_ms:
        raise InvalidFieldError(
            "endpointing.max_utterance",
            f"{endpointing.max_utterance_ms} ms",
            f"{first_ms} ms (initial_wait and segment_duration) or more",
        )


def _choice(field: str, number: int, meanings: dict[int, bool]) -> bool:
    if number not in meanings:
        raise InvalidFieldError(field, number, f"one of {sorted(meanings)}")
    return meanings[number]


def _refuse_reserved(config: Config) -> None:
    if config.resume_token:
        raise UnimplementedFieldError("resume_token")
    if config.HasField("target_lag"):
        raise UnimplementedFieldError("target_lag")
    if config.beam_size > 1:
        raise UnimplementedFieldError("beam_size", "larger than 1 is not implemented")
    if config.beam_size < 0:
        raise InvalidFieldError("beam_size", config.beam_size, "1")
