"""What a service tells about the model it serves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelFacts:
    """See `ModelDescription` on the wire.

    Attributes:
        name: name by which clients ask for it.
        hash: SHA-256 over the checkpoint's contents, lower-case hex.
        version: version of the checkpoint.
        source_language: BCP-47 tag.
        target_languages: BCP-47 tags, sorted.
        decoder_layers: number of decoder layers.
        parameter_count: parameters, counted once each.
        computes_in_bfloat16: whether matrix products are in bfloat16.
        default_policy: the decision policy calibrated for it.
        default_alpha: EDAtt's threshold.
        default_lambda_states: number of last states that EDAtt adds up.
        default_attention_layer: decoder layer whose cross-attention is read, from 1.
        default_frames: AlignAtt's distance in states.
        default_segment_ms: segment duration in milliseconds.
        default_attention_heads: heads of that layer whose mean is read, from 1; empty means all.
        lacks_ctc: whether it has no CTC head: no labels, no source words, no transcript.
        greedy_only: whether it decodes greedily alone, without beams.
        computes_in_int8: whether they are in 8-bit integers; if neither, in float32.
    """

    name: str
    hash: str
    version: str
    source_language: str
    target_languages: tuple[str, ...]
    decoder_layers: int
    parameter_count: int
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
