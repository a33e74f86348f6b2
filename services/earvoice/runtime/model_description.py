"""The facts about a model as the message that every service sends."""

from __future__ import annotations

from earvoice.api.v1 import types_pb2
from earvoice.runtime.model_facts import ModelFacts


def model_description(facts: ModelFacts) -> types_pb2.ModelDescription:
    """Return the message."""
    bfloat16 = facts.computes_in_bfloat16
    return types_pb2.ModelDescription(
        name=facts.name,
        hash=facts.hash,
        version=facts.version,
        source_language_code=facts.source_language,
        target_language_codes=facts.target_languages,
        decoder_layer_count=facts.decoder_layers,
        precision=(types_pb2.ELEMENT_TYPE_BFLOAT16 if bfloat16 else types_pb2.ELEMENT_TYPE_FLOAT32),
        parameter_count=facts.parameter_count,
        default_policy=facts.default_policy,
        default_alpha=facts.default_alpha,
        default_lambda_states=facts.default_lambda_states,
        default_attention_layer=facts.default_attention_layer,
        default_frames=facts.default_frames,
        default_segment_ms=facts.default_segment_ms,
        default_attention_heads=facts.default_attention_heads,
    )
