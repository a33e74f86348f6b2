"""The native WebSocket's messages: reads and checks the caller's JSON, and writes our events."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from google.protobuf import json_format

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.api.v1 import types_pb2 as types
from earvoice.client import (
    Committed,
    CommittedWord,
    EndOfUtterance,
    GoAway,
    NotUnderstood,
    Reconnected,
    ResumePoint,
    SegmentDone,
    Started,
    Summary,
    Tentative,
    TranslationError,
    TranslationEvent,
    TranslationOptions,
    TranslationUpdate,
)
from earvoice.client.captions import (
    LINE_COLUMNS,
    LINE_LIMIT,
    NO_MARKS,
    CaptionMarks,
    Cue,
    captions_of,
)
from earvoice.client.errors import PASSING_BY_REASON, Advice
from earvoice.client.options import read_config, read_update
from earvoice.gateway.settings import MOST_LANGUAGES
from earvoice.runtime.audio_format import AudioEncoding, allowed_channels, allowed_rates_hz
from earvoice.runtime.errors import (
    EarvoiceError,
    InvalidFieldError,
    MalformedMessageError,
    check_range,
)
from earvoice.runtime.parameter import ParameterError

STREAM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LONGEST_WORD_LETTERS = 1_000
"""Limit for captions made on request: the longer a word, the longer its layout takes."""
MOST_LETTERS = 1_000_000
"""Of all words together: more than a body of usual words has, and half a minute of computation."""
MOST_MARK_LETTERS = LINE_LIMIT * LINE_COLUMNS
"""Of what captions show where nothing was understood: what one caption holds."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LARGEST_NUMBER = 1 << 53
"""Up to here JSON numbers represent every integer exactly."""
_STREAM_NAME_RULE = "1 to 64 letters, digits, dots, hyphens and underscores"
_KINDS: dict[type[TranslationEvent], str] = {
    Started: "started",
    Committed: "words",
    Tentative: "tentative",
    SegmentDone: "segment",
    EndOfUtterance: "utterance_end",
    GoAway: "going_away",
    Reconnected: "reconnected",
    Summary: "summary",
}
# The caller knows its own options; a token is sent as part of ``resume_point``.
_NOT_TOLD = frozenset({"options", "model", "resume_token"})


@dataclass(frozen=True)
class StartMessage:
    """The first message of a speaker.

    Attributes:
        publish: name under which others may read the stream; empty for nobody.
        resume_points: by language, where an interrupted stream resumes.
        container: the audio comes in a container, such as WebM; ``config`` has the format that it
            is decoded to.
        marks: how the published captions mark words that may be wrong.
        alive: the caller is to be told every few seconds that the gateway is there.
        tracks: people whose audio comes apart, each in sessions of their own; "" for one.
    """

    options: TranslationOptions
    access_token: str = ""
    publish: str = ""
    resume_points: Mapping[str, ResumePoint] = field(default_factory=dict)
    container: bool = False
    marks: CaptionMarks = NO_MARKS
    alive: bool = False
    tracks: tuple[str, ...] = ("",)


def read_start(text: str) -> StartMessage:
    """Read ``{"type": "start", "config": {…}, …}``; ``config`` is a ``StreamingConfig`` in JSON."""
    content = read_object(text)
    kind = content.get("type")
    if kind != "start":
        raise InvalidFieldError("type", kind, "start, as the first message")
    fields = "type, config, access_token, publish, resume, container, captions, alive"
    for name in content:
        if name not in fields.split(", "):
            raise InvalidFieldError("start", name, f"the fields {fields}")
    options = _read_options(content.get("config"))
    publish = content.get("publish", "")
    if publish != "":
        check_stream_name("publish", publish)
    access_token = content.get("access_token", "")
    if not isinstance(access_token, str):
        raise InvalidFieldError("access_token", "(not shown)", "a text")
    container, alive = content.get("container", False), content.get("alive", False)
    for name, value in (("container", container), ("alive", alive)):
        if not isinstance(value, bool):
            raise InvalidFieldError(name, value, "true or false")
    if container and options.audio.encoding == "words":
        raise InvalidFieldError("container", "true", "false with AUDIO_ENCODING_WORDS")
    if container and content.get("resume"):
        # Nobody knows which byte of a container belongs to which sample.
        raise InvalidFieldError("resume", "given", "none with a container")
    resume_points = _read_resume_points(content.get("resume", {}), options.target_languages)
    marks = _read_marks(content.get("captions", {}))
    return StartMessage(options, access_token, publish, resume_points, container, marks, alive)


def check_languages(field_name: str, languages: Sequence[str]) -> None:
    """Check the number of a speaker's languages."""
    if not 1 <= len(languages) <= MOST_LANGUAGES or len(set(languages)) < len(languages):
        allowed = f"1 to {MOST_LANGUAGES}, each once"
        raise InvalidFieldError(field_name, list(languages), allowed)


def check_stream_name(field_name: str, name: object) -> None:
    """Check that a stream can be published under this name."""
    if not isinstance(name, str) or not STREAM_NAME.fullmatch(name):
        raise InvalidFieldError(field_name, name, _STREAM_NAME_RULE)


def read_update_message(content: Mapping[str, Any]) -> TranslationUpdate:
    """Read ``{"type": "update", "update": {…}}``, a ``StreamingUpdate`` in proto3 JSON."""
    update = Fields("update", content, ("type", "update")).content.get("update")
    if not isinstance(update, dict):
        raise InvalidFieldError("update", update, "an object, a StreamingUpdate in proto3 JSON")
    try:
        return read_update(json_format.ParseDict(update, api.StreamingUpdate()))
    except ParameterError as error:
        raise _wrong_policy("update", error) from error
    except (json_format.ParseError, OverflowError, ValueError) as error:
        raise MalformedMessageError(f"update: {error}") from error


def read_captions(body: bytes) -> list[Cue]:
    """Make cues from a stream's messages: ``{"words": […], "utterances": […], "captions": {…}}``.

    ``words`` are those of `words` messages, ``utterances`` are `utterance_end` messages.
    """
    content = read_object(body)
    words, ends = content.get("words"), content.get("utterances", [])
    if not isinstance(words, list):
        raise InvalidFieldError("words", words, "a list of words, as they came")
    if not isinstance(ends, list):
        raise InvalidFieldError("utterances", ends, "a list of utterance_end messages")
    spoken = [_read_word(Fields(f"words[{n}]", word)) for n, word in enumerate(words)]
    letters = sum(len(word.text) for word in spoken)
    if letters > MOST_LETTERS:
        raise InvalidFieldError("words", f"{letters} letters", f"{MOST_LETTERS} letters at most")
    not_understood = {}
    for number, end in enumerate(ends):
        told = Fields(f"utterances[{number}]", end)
        if told.content.get("not_understood") is not None:
            span = Fields(f"{told.name}.not_understood", told.content["not_understood"])
            times = (span.take("start_ms", int, float), span.take("end_ms", int, float))
            not_understood[told.take("utterance", int)] = NotUnderstood(*times)
    return captions_of(spoken, _read_marks(content.get("captions", {})), not_understood)


def _read_marks(content: object) -> CaptionMarks:
    fields = Fields("captions", content, ("mark_below", "not_understood"))
    below = fields.take("mark_below", int, float, default=0.0)
    if not 0 <= below <= 1:
        raise InvalidFieldError("captions.mark_below", below, "0 to 1")
    shown = fields.take("not_understood", str, default="")
    if len(shown) > MOST_MARK_LETTERS:
        allowed = f"{MOST_MARK_LETTERS} letters at most"
        raise InvalidFieldError("captions.not_understood", f"{len(shown)} letters", allowed)
    return CaptionMarks(below, shown)


class Fields:
    """The fields of an object in a message.

    Args:
        name: of the object, for errors.
        allowed: names of all fields that it may have; None for any.
    """

    def __init__(self, name: str, content: object, allowed: Sequence[str] | None = None) -> None:
        if not isinstance(content, dict):
            raise InvalidFieldError(name, content, "an object")
        for field_name in content:
            if allowed is not None and field_name not in allowed:
                raise InvalidFieldError(name, field_name, f"the fields {', '.join(allowed)}")
        self.name = name
        self.content = content

    def take(self, name: str, *kinds: type, default: object = None) -> Any:
        value = self.content.get(name, default)
        # Rejects infinity, too, which is what 1e999 parses to.
        is_told = not isinstance(value, int | float) or abs(value) <= _LARGEST_NUMBER
        is_other = isinstance(value, bool) and bool not in kinds
        if not isinstance(value, kinds) or is_other or not is_told:
            allowed = "text" if str in kinds else "true or false" if bool in kinds else "a number"
            raise InvalidFieldError(f"{self.name}.{name}", value, allowed)
        return value


def _read_word(word: Fields) -> CommittedWord:
    text = word.take("text", str)
    if len(text) > LONGEST_WORD_LETTERS:
        allowed = f"{LONGEST_WORD_LETTERS} letters at most"
        raise InvalidFieldError(f"{word.name}.text", text, allowed)
    return CommittedWord(
        text=text,
        starts_word=word.take("starts_word", bool),
        target_language="",
        utterance=word.take("utterance", int),
        source_start_ms=word.take("source_start_ms", int, float),
        source_end_ms=word.take("source_end_ms", int, float),
        delay_ms=0.0,
        elapsed_ms=0.0,
        received_ms=0.0,
        confidence=word.take("confidence", int, float, default=1.0),
    )


def read_object(text: str | bytes) -> dict[str, Any]:
    try:
        content = json.loads(text, parse_constant=_refuse_constant)
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        if _SURROGATE.search(text):
            json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate is no character
    except (ValueError, RecursionError) as error:
        raise MalformedMessageError(f"the message is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise MalformedMessageError("the message is JSON, but not an object")
    return content


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _read_options(config: object) -> TranslationOptions:
    if not isinstance(config, dict):
        raise InvalidFieldError("config", config, "an object, a StreamingConfig in proto3 JSON")
    try:
        message = json_format.ParseDict(config, api.StreamingConfig())
    except (json_format.ParseError, OverflowError) as error:
        raise MalformedMessageError(f"config: {error}") from error
    if message.resume_token:
        raise InvalidFieldError("config.resumeToken", "given", "none: places are told in resume")
    _check_choices(message)
    reads = message.audio_encoding == types.AUDIO_ENCODING_WORDS
    encoding: AudioEncoding = "words" if reads else "linear16"
    check_range("config.sampleRateHertz", message.sample_rate_hertz, *allowed_rates_hz(encoding))
    channels = message.audio_channel_count or 1
    check_range("config.audioChannelCount", channels, 1, allowed_channels(encoding))
    try:
        options = read_config(message)
    except ParameterError as error:
        raise _wrong_policy("config", error) from error
    except ValueError as error:
        raise MalformedMessageError(f"config: {error}") from error
    check_languages("config.targetLanguageCodes", options.target_languages)
    return options


def _wrong_policy(parent: str, error: ParameterError) -> InvalidFieldError:
    field = f"{parent}.{error.field}"
    return InvalidFieldError(field, error.value, error.allowed, error.problem)


def _check_choices(config: api.StreamingConfig) -> None:
    """Check enums by their wire names: JSON may also have them as numbers."""
    for name in ("audio_encoding", "catch_up", "commit_unit"):
        field = config.DESCRIPTOR.fields_by_name[name]
        assert field.enum_type is not None  # noqa: S101 - these are enums
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        number = getattr(config, name)
        if number not in names or (name == "audio_encoding" and not number):
            allowed = ", ".join(names[each] for each in sorted(names) if each)
            value = names.get(number, number)
            raise InvalidFieldError(f"config.{field.json_name}", value, allowed)


def _read_resume_points(content: object, languages: tuple[str, ...]) -> dict[str, ResumePoint]:
    if not isinstance(content, dict) or not set(content) <= set(languages):
        raise InvalidFieldError("resume", content, f"places of {', '.join(languages)}")
    points = {}
    for language, place in content.items():
        try:
            points[language] = ResumePoint.from_bytes(base64.b64decode(place, validate=True))
        except (TypeError, ValueError) as error:
            allowed = "the resume_point of an event, as it came"
            raise InvalidFieldError(f"resume.{language}", place, allowed) from error
    return points


def describe_event(
    language: str, event: TranslationEvent, resume_point: bytes = b""
) -> dict[str, Any]:
    """Return an event as a JSON object: ``type``, ``language``, and its own fields.

    Args:
        resume_point: where the session can resume after this event; empty if it cannot.
    """
    content = {
        item.name: _plain(getattr(event, item.name))
        for item in fields(event)
        if item.name not in _NOT_TOLD
    }
    if isinstance(event, Started):
        content["source_language"] = event.source_language
    told = {"type": _KINDS[type(event)], "language": language, **content}
    if resume_point:
        told["resume_point"] = base64.b64encode(resume_point).decode()
    return told


def describe_error(
    error: EarvoiceError | TranslationError, *, has_begun: bool = False
) -> dict[str, Any]:
    """Return an error as a JSON object.

    Args:
        has_begun: whether the caller has been told of a session, which it can resume.
    """
    if isinstance(error, TranslationError):
        retry_after_ms = None if error.retry_after_s is None else round(error.retry_after_s * 1000)
        code, advice = error.code, error.advice.value
    else:
        retry_after_ms = error.retry_after_ms
        passing = Advice.RESUME if has_begun else Advice.RETRY
        advice = (passing if may_pass(error) else Advice.GIVE_UP).value
        code = error.code.name
    return {
        "type": "error",
        "code": code,
        "reason": error.reason,
        "message": error.message,
        "advice": advice,
        "retry_after_ms": retry_after_ms,
    }


def may_pass(error: EarvoiceError | TranslationError) -> bool:
    """Say whether the same may succeed later."""
    if isinstance(error, TranslationError):
        return error.passing
    return PASSING_BY_REASON[error.reason]


def dump(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    return value
