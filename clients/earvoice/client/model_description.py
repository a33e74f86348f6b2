"""What a server says about the models it serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from google.protobuf.message import Message

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.api.v1 import types_pb2 as types
from earvoice.policies import POLICIES
from earvoice.policies.message import policy_text

Read = TypeVar("Read")


@dataclass(frozen=True)
class ModelDescription:
    """One model, with the defaults calibrated for it.

    Attributes:
        hash: SHA-256 over the checkpoint's contents, lower-case hex.
        precision: number format the service computes with, such as ``float32``.
        default_lambda_states: how many of the last states EDAtt adds up.
        default_attention_layer: decoder layer whose cross-attention is read, from 1.
        default_frames: AlignAtt's distance from the last state, in states.
        default_policies: by target language, if another than ``default_policy`` suits it better;
            as ``parse_policy`` reads them, or as a newer server sends them.
        default_min_confidence: mean confidence that an utterance's words must reach.
        default_attention_heads: heads whose mean is read, from 1; empty means all.
        reads_words: its source is text, not sound.
    """

    name: str
    hash: str
    version: str
    source_language: str
    target_languages: tuple[str, ...]
    precision: str
    parameter_count: int
    decoder_layer_count: int
    decoder_head_count: int
    default_policy: str
    default_alpha: float
    default_lambda_states: int
    default_attention_layer: int
    default_frames: int
    default_segment_ms: int
    default_attention_heads: tuple[int, ...] = ()
    default_min_confidence: float = 0.0
    reads_words: bool = False
    default_policies: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class ModelCatalog:
    """What a server can be asked for.

    Attributes:
        models: the first is the default.
    """

    models: tuple[ModelDescription, ...]
    policies: tuple[str, ...]
    max_target_languages: int


def read_fields(kind: type[Read], message: Message, **given: Any) -> Read:
    """Return a dataclass filled from ``given`` and the message's fields of the same names."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type] # a dataclass
    same = {name: getattr(message, name) for name in names if name not in given}
    return kind(**same, **given)


def read_model(message: types.ModelDescription) -> ModelDescription:
    precision = types.ElementType.Name(message.precision)
    return read_fields(
        ModelDescription,
        message,
        source_language=message.source_language_code,
        target_languages=tuple(message.target_language_codes),
        precision=precision.removeprefix("ELEMENT_TYPE_").lower(),
        default_attention_heads=tuple(message.default_attention_heads),
        default_policies={
            language: text
            for language, told in message.default_policies.items()
            if (text := policy_text(told, POLICIES))
        },
    )


def read_catalog(message: api.ListModelsResponse) -> ModelCatalog:
    return ModelCatalog(
        models=tuple(read_model(model) for model in message.models),
        policies=tuple(message.policies),
        max_target_languages=message.max_target_languages,
    )
