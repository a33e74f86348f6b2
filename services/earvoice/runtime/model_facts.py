"""What a service tells about the model it serves."""

from __future__ import annotations

from dataclasses import dataclass

from earvoice.api.v1 import types_pb2


@dataclass(frozen=True)
class ModelFacts:
    """See `ModelDescription` on the wire."""

    name: str
    hash: str
    """SHA-256 over the checkpoint's contents, lower-case hex."""
    version: str
    source_language: str
    target_languages: tuple[str, ...]
    """BCP-47 tags, sorted."""
    decoder_layers: int
    parameter_count: int
    """Parameters, counted once each."""
    computes_in_bfloat16: bool
    default_policy: str
    default_alpha: float
    default_lambda_states: int
    default_attention_layer: int
    default_frames: int
    default_segment_ms: int
    default_attention_heads: tuple[int, ...] = ()
    lacks_ctc: bool = False
    greedy_only: bool = False
    computes_in_int8: bool = False
    """If neither in this nor in bfloat16, then in float32."""
    confidence_unsure_scale: float = 1.0
    confidence_sure_scale: float = 1.0
    confidence_offset: float = 0.0
    default_min_confidence: float = 0.0

    def description(self) -> types_pb2.ModelDescription:
        precision = types_pb2.ELEMENT_TYPE_FLOAT32
        if self.computes_in_int8:
            precision = types_pb2.ELEMENT_TYPE_INT8
        elif self.computes_in_bfloat16:
            precision = types_pb2.ELEMENT_TYPE_BFLOAT16
        return types_pb2.ModelDescription(
            name=self.name,
            hash=self.hash,
            version=self.version,
            source_language_code=self.source_language,
            target_language_codes=self.target_languages,
            decoder_layer_count=self.decoder_layers,
            precision=precision,
            parameter_count=self.parameter_count,
            default_policy=self.default_policy,
            default_alpha=self.default_alpha,
            default_lambda_states=self.default_lambda_states,
            default_attention_layer=self.default_attention_layer,
            default_frames=self.default_frames,
            default_segment_ms=self.default_segment_ms,
            default_attention_heads=self.default_attention_heads,
            lacks_ctc=self.lacks_ctc,
            greedy_only=self.greedy_only,
            confidence_map=types_pb2.ConfidenceMap(
                unsure_scale=self.confidence_unsure_scale,
                sure_scale=self.confidence_sure_scale,
                offset=self.confidence_offset,
            ),
            default_min_confidence=self.default_min_confidence,
        )
