"""What sessions and callers must know about the model that is served. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from earvoice.runtime.model_facts import ModelFacts


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
    """Facts, sizes and tokens of the model served.

    Attributes:
        facts: what callers are told.
        language_tokens: BCP-47 tag of each target to the tokens forced after the start token.
        dimension: values per encoder state.
        head_count: heads of each decoder layer.
        tokens: its target vocabulary.
        max_tokens: most tokens of a hypothesis behind the language's; None means any number.
    """

    facts: ModelFacts
    language_tokens: Mapping[str, tuple[int, ...]]
    dimension: int
    head_count: int
    tokens: TokenTable
    max_tokens: int | None = None
