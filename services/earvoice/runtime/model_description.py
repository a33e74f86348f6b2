"""The facts about a model as the message that every service sends."""

from __future__ import annotations

from earvoice.api.v1 import types_pb2
from earvoice.runtime.model_facts import ModelFacts


def model_description(facts: ModelFacts) -> types_pb2.ModelDescription:
    """Return the message."""
    return types_pb2.ModelDescription(
        name=facts.name,
        hash=facts.hash,
        version=facts.version,
        source_language_code=facts.source_language,
        target_language_codes=facts.target_languages,
        decoder_layer_count=facts.decoder_layers,
        precision=_precision(facts),
        parameter_count=facts.parameter_count,
        default_policy=facts.default_policy,
        default_alpha=facts.default_alpha,
        default_lambda_states=facts.default_lambda_states,
        default_attention_layer=facts.default_attention_layer,
        default_frames=facts.default_frames,
        default_segment_ms=facts.default_segment_ms,
        default_attention_heads=facts.default_attention_heads,
        lacks_ctc=facts.lacks_ctc,
        greedy_only=facts.greedy_only,
    )


def _precision(facts: ModelFacts) -> types_pb2.ElementType.ValueType:
    if facts.computes_in_int8:
        return types_pb2.ELEMENT_TYPE_INT8
    if facts.computes_in_bfloat16:
        return types_pb2.ELEMENT_TYPE_BFLOAT16
    return types_pb2.ELEMENT_TYPE_FLOAT32
