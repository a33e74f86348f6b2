"""What sessions and callers must know about the model that is served. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from earvoice.decoder.state_block import ElementType


@dataclass(frozen=True)
class CalibratedPolicy:
    """The decision policy calibrated for a model.

    Attributes:
        name: the policy.
        alpha: EDAtt's threshold.
        lambda_states: number of last states that EDAtt adds up.
        attention_layer: decoder layer whose cross-attention is read, from 1.
        frames: AlignAtt's distance in states.
        segment_ms: segment duration in milliseconds.
    """

    name: str
    alpha: float
    lambda_states: int
    attention_layer: int
    frames: int
    segment_ms: int


@dataclass(frozen=True)
class TokenTable:
    """What each vocabulary id writes.

    Attributes:
        texts: UTF-8 bytes by id, without a word's blank; empty for specials.
        starts_word: by id, whether the token begins a word.
        end_token: id of the end of sentence, which also starts every hypothesis.
    """

    texts: tuple[bytes, ...]
    starts_word: tuple[bool, ...]
    end_token: int


@dataclass(frozen=True)
class ServedModel:
    """Names, sizes and tokens of the model served.

    Attributes:
        name: name by which clients ask for it.
        hash: SHA-256 over the checkpoint's contents, lower-case hex.
        version: version of the checkpoint.
        source_language: BCP-47 tag.
        target_languages: BCP-47 tag to the tokens forced after the start token.
        decoder_layers: number of decoder layers.
        dimension: values per encoder state.
        precision: number format computed with.
        parameter_count: parameters, counted once each.
        policy: the policy calibrated for it.
        tokens: its target vocabulary.
    """

    name: str
    hash: str
    version: str
    source_language: str
    target_languages: Mapping[str, tuple[int, ...]]
    decoder_layers: int
    dimension: int
    precision: ElementType
    parameter_count: int
    policy: CalibratedPolicy
    tokens: TokenTable
