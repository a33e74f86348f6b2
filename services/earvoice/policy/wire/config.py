"""What a stream asks for: checked, every default filled in, and sent back in full."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, get_args

from google.protobuf import duration_pb2

from earvoice.api.v1 import decision_policy_pb2, types_pb2
from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.policies.base import DecisionPolicy
from earvoice.policies.message import read_policy, write_policy
from earvoice.policies.registry import POLICIES, Policies
from earvoice.policy.stream_options import (
    CommitUnit,
    Confidence,
    Endpointing,
    HistorySelection,
    StreamOptions,
)
from earvoice.runtime.audio_format import (
    AudioEncoding,
    AudioFormat,
    allowed_channels,
    allowed_rates_hz,
)
from earvoice.runtime.errors import (
    InvalidFieldError,
    LanguageNotSupportedError,
    ModelNotFoundError,
    UnimplementedFieldError,
    check_range,
    shown,
)
from earvoice.runtime.parameter import ParameterError
from earvoice.runtime.stream_ranges import (
    BEAM_SIZE,
    HISTORY_WORDS,
    INITIAL_WAIT_MS,
    MAX_UTTERANCE_MS,
    MOST_PAUSE_IN_SENTENCE_MS,
    PAUSE_MS,
    SEGMENT_MS,
    TARGET_LAG_MS,
)

Config = public_pb.StreamingConfig
Model = types_pb2.ModelDescription

ENCODINGS: Mapping[Any, AudioEncoding] = {
    types_pb2.AudioEncoding.Value(f"AUDIO_ENCODING_{name.upper()}"): name
    for name in get_args(AudioEncoding)
}
ENCODING_NUMBERS = {encoding: number for number, encoding in ENCODINGS.items()}
COMMIT_UNITS: Mapping[Any, CommitUnit] = {
    public_pb.COMMIT_UNIT_UNSPECIFIED: "word",
    public_pb.COMMIT_UNIT_WORD: "word",
    public_pb.COMMIT_UNIT_TOKEN: "token",
    public_pb.COMMIT_UNIT_FOLLOWED_WORD: "followed-word",
}
COMMIT_UNIT_NUMBERS = {unit: number for number, unit in COMMIT_UNITS.items()}

LANGUAGE_TAG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*")
"""The shape of a BCP-47 tag that begins with a language of ISO 639."""
Choice = TypeVar("Choice")


def stream_options(config: Config, model: Model, policies: Policies = POLICIES) -> StreamOptions:
    """Check a config and fill in the defaults."""
    if config.model and config.model != model.name:
        raise ModelNotFoundError(
            f"model = {shown(config.model)} is not served; allowed: {model.name!r}",
            allowed=model.name,
        )
    check_language(
        "source_language_code", config.source_language_code, [model.source_language_code]
    )
    target = _target(config, model)
    policy = resolved_policy(config.policy, model, policies, target)
    layer, heads = attention_of(policy, model)
    segment = config.segment_duration if config.HasField("segment_duration") else None
    wait = config.initial_wait if config.HasField("initial_wait") else None
    defaults_ms = (model.default_segment_ms, 0)
    segment_ms, wait_ms = checked_segments_ms(segment, wait, policy, defaults_ms)
    options = StreamOptions(
        audio_format=_audio_format(config, model),
        target_language_code=target,
        policy=policy,
        attention_layer=layer,
        segment_ms=segment_ms,
        initial_wait_ms=wait_ms,
        merges_segments=_choice(
            config,
            "catch_up",
            # Words have no pace, so no machine is late with them.
            {0: False, 2: False} if model.reads_words else {0: True, 1: True, 2: False},
        ),
        commit_unit=_choice(config, "commit_unit", COMMIT_UNITS),
        endpointing=_endpointing(config),
        sends_interim_results=config.enable_interim_results,
        sends_source_transcript=config.enable_source_transcript,
        sends_stage_timings=config.enable_stage_timings,
        uses_guards=not config.disable_guards,
        beam_size=checked_beam_size(config.beam_size, policy, 1),
        attention_heads=heads,
        history_selection=_history_selection(config),
        sends_hypotheses=config.enable_hypotheses,
        target_lag_ms=_target_lag_ms(config),
        confidence=_confidence(config, model, target),
        longest_utterance_ms=model.longest_utterance_ms or None,
    )
    check_consistency(options)
    check_model_fit(options, model)
    return options


def effective_config(options: StreamOptions, model: Model) -> Config:
    """Return the config that says in full what the session will do."""
    config = Config(
        audio_encoding=ENCODING_NUMBERS[options.audio_format.encoding],
        sample_rate_hertz=options.audio_format.sample_rate_hz,
        audio_channel_count=options.audio_format.channel_count,
        source_language_code=model.source_language_code,
        target_language_codes=[options.target_language_code],
        model=model.name,
        policy=write_policy(options.policy),
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
        min_confidence=options.confidence.least,
    )
    if options.endpointing is not None:
        config.endpointing.CopyFrom(
            public_pb.Endpointing(
                pause=milliseconds(options.endpointing.pause_ms),
                max_utterance=milliseconds(options.endpointing.max_utterance_ms),
                pause_in_sentence=milliseconds(options.endpointing.pause_in_sentence_ms),
            )
        )
    if options.target_lag_ms is not None:
        config.target_lag.CopyFrom(milliseconds(options.target_lag_ms))
    match options.history_selection:
        case int() as words:
            config.history_selection.words = words
        case "last sentence":
            config.history_selection.last_sentence = True
    return config


def resolved_policy(
    message: decision_policy_pb2.DecisionPolicy,
    model: Model,
    policies: Policies,
    target: str = "",
) -> DecisionPolicy:
    """Return the policy asked for, else the model's for the target language or for all.

    Raises:
        UnimplementedFieldError: the policy is the model's own, and cannot be served here.
    """
    try:
        policy = read_policy(message, policies)
    except ParameterError as error:
        raise _invalid_field(error) from error
    if policy is None:
        return _default_policy(model, policies, target)
    try:
        return policy.resolved(model)
    except ParameterError as error:
        raise _invalid_field(error.within(f"policy.{policy.name}.")) from error


def _invalid_field(error: ParameterError) -> InvalidFieldError:
    return InvalidFieldError(error.field, error.value, error.allowed, error.problem)


def _default_policy(model: Model, policies: Policies, target: str) -> DecisionPolicy:
    try:
        unset = decision_policy_pb2.DecisionPolicy()
        policy = read_policy(model.default_policies.get(target, unset), policies)
        if policy is None:
            if model.default_policy not in policies:
                raise UnimplementedFieldError(
                    f"policy.{model.default_policy}",
                    f"is not implemented; there are {', '.join(policies)}",
                )
            policy = policies[model.default_policy]()
        return policy.resolved(model)
    except ParameterError as error:
        raise UnimplementedFieldError(
            "policy", f"is unset, and model {model.name!r} has one that is not implemented: {error}"
        ) from error


def check_language(field: str, code: str, allowed: Sequence[str]) -> str:
    """Return the model's tag for a language; ``en-US`` is served by ``en``."""
    if not code and len(allowed) == 1:
        return allowed[0]
    for tag in allowed:
        is_kind_of = code.lower().split("-")[0] == tag.lower() and LANGUAGE_TAG.fullmatch(code)
        if code.lower() == tag.lower() or is_kind_of:
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


def _audio_format(config: Config, model: Model) -> AudioFormat:
    known = {
        number: name for number, name in ENCODINGS.items() if model.reads_words == (name == "words")
    }
    encoding = _choice(config, "audio_encoding", known)
    channels = config.audio_channel_count or 1
    return AudioFormat(
        encoding,
        check_range("sample_rate_hertz", config.sample_rate_hertz, *allowed_rates_hz(encoding)),
        check_range("audio_channel_count", channels, 1, allowed_channels(encoding)),
    )


def _endpointing(config: Config) -> Endpointing | None:
    message, default = config.endpointing, Endpointing()
    if message.disabled:
        return None
    pause_ms, max_ms = default.pause_ms, default.max_utterance_ms
    if message.HasField("pause"):
        pause_ms = duration_ms("endpointing.pause", message.pause, *PAUSE_MS)
    if message.HasField("max_utterance"):
        field = "endpointing.max_utterance"
        max_ms = duration_ms(field, message.max_utterance, *MAX_UTTERANCE_MS)
    longer_ms = min(2 * pause_ms, max_ms)
    if message.HasField("pause_in_sentence"):
        field = "endpointing.pause_in_sentence"
        longer_ms = duration_ms(
            field, message.pause_in_sentence, pause_ms, MOST_PAUSE_IN_SENTENCE_MS
        )
    return Endpointing(pause_ms, max_ms, longer_ms)


def _target_lag_ms(config: Config) -> int | None:
    if not config.HasField("target_lag"):
        return None
    return duration_ms("target_lag", config.target_lag, *TARGET_LAG_MS)


def _confidence(config: Config, model: Model, target: str) -> Confidence:
    # It was fitted to words as spoken; even a good translation is less sure of each word.
    is_spoken = target == model.source_language_code or model.translates_text
    least = model.default_min_confidence if is_spoken and not config.disable_guards else 0.0
    if config.HasField("min_confidence"):
        least = check_range("min_confidence", config.min_confidence, 0.0, 1.0)
    if not model.HasField("confidence_map"):
        return Confidence(least=least, by_agreement=is_spoken)
    known = model.confidence_map
    scales = (known.unsure_scale, known.sure_scale, known.offset)
    return Confidence(*scales, least=least, by_agreement=is_spoken)


def _history_selection(config: Config) -> HistorySelection | None:
    message = config.history_selection
    match message.WhichOneof("keep"):
        case "words":
            return check_range("history_selection.words", message.words, *HISTORY_WORDS)
        case "last_sentence" if message.last_sentence:
            return "last sentence"
        case "last_sentence":
            raise InvalidFieldError("history_selection.last_sentence", False, "true, or unset")  # noqa: FBT003 - the value refused
    if config.HasField("history_selection"):
        raise InvalidFieldError("history_selection", "nothing", "words or last_sentence")
    return None


def _choice(config: Config, field: str, meanings: Mapping[Any, Choice]) -> Choice:
    number: int = getattr(config, field)
    if number not in meanings:
        enum = config.DESCRIPTOR.fields_by_name[field].enum_type
        names = enum.values_by_number if enum is not None else {}
        value = names[number].name if number in names else number
        raise InvalidFieldError(field, value, ", ".join(names[n].name for n in sorted(meanings)))
    return meanings[number]


_CLASHES_WITH_SEGMENTS = ("segment_duration", "endpointing.max_utterance")


def updated_options(
    options: StreamOptions,
    update: public_pb.StreamingUpdate,
    model: types_pb2.ModelDescription,
    policies: Policies = POLICIES,
) -> StreamOptions:
    """Return a session's options after a change; what it leaves unset stays as it was."""
    if not update.ListFields():
        raise InvalidFieldError("update", "nothing", "policy, segment_duration or beam_size")
    policy = options.policy
    if update.HasField("policy"):
        policy = resolved_policy(update.policy, model, policies, options.target_language_code)
    duration = update.segment_duration if update.HasField("segment_duration") else None
    defaults_ms = options.segment_ms, options.initial_wait_ms
    if options.policy.required_segment_ms is not None:
        # What one policy dictated may be out of bounds for the next.
        defaults_ms = model.default_segment_ms, 0
    segment_ms, wait_ms = checked_segments_ms(duration, None, policy, defaults_ms)
    layer, heads = attention_of(policy, model)
    updated = replace(
        options,
        policy=policy,
        attention_layer=layer,
        attention_heads=heads,
        beam_size=checked_beam_size(update.beam_size, policy, options.beam_size),
        segment_ms=segment_ms,
        initial_wait_ms=wait_ms,
    )
    try:
        check_consistency(updated)
    except InvalidFieldError as error:
        # It may name a field that an update does not have: name the one that brought the clash.
        field, value = "policy", policy.name
        if duration is not None and error.metadata["field"] in _CLASHES_WITH_SEGMENTS:
            field, value = "segment_duration", f"{segment_ms} ms"
        raise InvalidFieldError(field, value, f"another, because {error.message}") from error
    check_model_fit(updated, model)
    return updated


WHOLE_BEAM_SIZE = 5
"""Default beam size of a policy that reads the whole beam, as in the papers."""


def checked_segments_ms(
    segment: duration_pb2.Duration | None,
    wait: duration_pb2.Duration | None,
    policy: DecisionPolicy,
    defaults_ms: tuple[int, int],
) -> tuple[int, int]:
    """Return the segments' duration, and how much longer the first is: given, or by default.

    A policy may dictate both.
    """
    required = policy.required_segment_ms
    bounds_ms = SEGMENT_MS, INITIAL_WAIT_MS
    chosen = list(defaults_ms if required is None else required)
    for place, (field, given) in enumerate((("segment_duration", segment), ("initial_wait", wait))):
        if given is None:
            continue
        if required is None:
            chosen[place] = duration_ms(field, given, *bounds_ms[place])
        elif given.ToMilliseconds() != required[place]:
            raise InvalidFieldError(
                field,
                f"{given.ToMilliseconds()} ms",
                f"{required[place]} ms, which policy.{policy.name} dictates, or unset",
            )
    return chosen[0], chosen[1]


def checked_beam_size(given: int, policy: DecisionPolicy, default: int) -> int:
    """Return the beam size.

    A policy that reads the beam gets 5 where neither the client nor the stream sets it.
    """
    if not given:
        return WHOLE_BEAM_SIZE if policy.reads_beam and default == 1 else default
    if policy.reads_beam and given == 1:
        raise InvalidFieldError(
            "beam_size", given, f"2 to {BEAM_SIZE[1]} with policy.{policy.name}, or unset"
        )
    return check_range("beam_size", given, *BEAM_SIZE)


def attention_of(policy: DecisionPolicy, model: Model) -> tuple[int, tuple[int, ...]]:
    """Return the decoder layer to read, the model's where the policy has none, and its heads."""
    layer, heads = policy.attention
    return layer or model.default_attention_layer, heads


def check_consistency(options: StreamOptions) -> None:
    """Refuse choices that contradict each other."""
    if options.audio_format.encoding == "words":
        word_ms = 1000 // options.audio_format.sample_rate_hz
        if options.segment_ms < word_ms:
            allowed = f"{word_ms} ms (a word) or more"
            raise InvalidFieldError("segment_duration", f"{options.segment_ms} ms", allowed)
    first_ms = options.initial_wait_ms + options.segment_ms
    endpointing = options.endpointing
    if endpointing is not None and endpointing.max_utterance_ms < first_ms:
        raise InvalidFieldError(
            "endpointing.max_utterance",
            f"{endpointing.max_utterance_ms} ms",
            f"{first_ms} ms (initial_wait and segment_duration) or more",
        )
    if options.history_selection is not None:
        _check_history(options.policy)
    if options.target_lag_ms is not None and not options.policy.has_lag_scale:
        raise InvalidFieldError(
            "target_lag",
            f"{options.target_lag_ms} ms",
            f"unset with policy.{options.policy.name}, which has no parameter to move",
        )


def _check_history(policy: DecisionPolicy) -> None:
    name = f"policy.{policy.name}"
    if not policy.commits_while_reading:
        raise InvalidFieldError("history_selection", "set", f"unset with {name}, which keeps all")
    if policy.ends_early:
        raise InvalidFieldError(
            "history_selection", "set", f"unset where {name} ends utterances before their audio"
        )


def check_model_fit(options: StreamOptions, model: types_pb2.ModelDescription) -> None:
    """Refuse what the model cannot do."""
    policy = f"policy.{options.policy.name}"
    without_ctc = f"model {model.name!r} has no CTC head, which source words are read from"
    counting = options.policy.source_word_parameter
    if model.lacks_ctc and counting is not None:
        value = getattr(options.policy, counting)
        raise InvalidFieldError(f"{policy}.{counting}", value, f"another: {without_ctc}")
    if model.lacks_ctc and options.sends_source_transcript:
        raise InvalidFieldError("enable_source_transcript", "true", f"false: {without_ctc}")
    if model.greedy_only and options.beam_size > 1:
        raise InvalidFieldError(
            "beam_size",
            f"{options.beam_size} for {policy}",
            f"1: model {model.name!r} decodes greedily alone",
        )


def duration_ms(
    field: str, duration: duration_pb2.Duration, lowest_ms: int, highest_ms: int
) -> int:
    value_ms = duration.seconds * 1000 + duration.nanos // 1_000_000
    if not lowest_ms <= value_ms <= highest_ms:
        raise InvalidFieldError(field, f"{value_ms} ms", f"{lowest_ms} ms to {highest_ms} ms")
    return value_ms


def milliseconds(value_ms: int) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromMilliseconds(value_ms)
    return duration
