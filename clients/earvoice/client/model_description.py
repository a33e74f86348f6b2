"""What a server says about the models it serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from earvoice.api.v1 import types_pb2 as types

if TYPE_CHECKING:
    from earvoice.api.v1 import speech_translation_service_pb2 as api


@dataclass(frozen=True)
class ModelDescription:
    """One model, with the defaults calibrated for it.

    Attributes:
        name: by which streams ask for it.
        hash: SHA-256 over the checkpoint's contents, lower-case hex.
        version: of the checkpoint.
        source_language: BCP-47 tag.
        target_languages: BCP-47 tags.
        precision: number format the service computes with, such as ``float32``.
        parameter_count: counted once each.
        decoder_layer_count: of which a policy may read one.
        default_policy: name of the calibrated decision policy.
        default_alpha: EDAtt's threshold.
        default_lambda_states: how many of the last states EDAtt adds up.
        default_attention_layer: decoder layer whose cross-attention is read, from 1.
        default_frames: AlignAtt's distance from the last state, in states.
        default_segment_ms: length of a segment.
        default_attention_heads: heads whose mean is read, from 1; empty means all.
    """

    name: str
    hash: str
    version: str
    source_language: str
    target_languages: tuple[str, ...]
    precision: str
    parameter_count: int
    decoder_layer_count: int
    default_policy: str
    default_alpha: float
    default_lambda_states: int
    default_attention_layer: int
    default_frames: int
    default_segment_ms: int
    default_attention_heads: tuple[int, ...] = ()


@dataclass(frozen=True)
class ModelCatalog:
    """What a server can be asked for.

    Attributes:
        models: the first is the default.
        policies: names of the decision policies a stream may choose.
        max_target_languages: how many target languages one stream may ask for.
    """

    models: tuple[ModelDescription, ...]
    policies: tuple[str, ...]
    max_target_languages: int


def read_model(message: types.ModelDescription) -> ModelDescription:
    """Return a model's description from its message."""
    precision = types.ElementType.Name(message.precision)
    return ModelDescription(
        name=message.name,
        hash=message.hash,
        version=message.version,
        source_language=message.source_language_code,
        target_languages=tuple(message.target_language_codes),
        precision=precision.removeprefix("ELEMENT_TYPE_").lower(),
        parameter_count=message.parameter_count,
        decoder_layer_count=message.decoder_layer_count,
        default_policy=message.default_policy,
        default_alpha=message.default_alpha,
        default_lambda_states=message.default_lambda_states,
        default_attention_layer=message.default_attention_layer,
        default_frames=message.default_frames,
        default_segment_ms=message.default_segment_ms,
        default_attention_heads=tuple(message.default_attention_heads),
    )


def read_catalog(message: api.ListModelsResponse) -> ModelCatalog:
    """Return what a server serves from its answer."""
    return ModelCatalog(
        models=tuple(read_model(model) for model in message.models),
        policies=tuple(message.policies),
        max_target_languages=message.max_target_languages,
    )
