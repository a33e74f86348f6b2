"""What a caller may ask of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from earvoice.decoder.state_block import StateBlock, StatesId


@dataclass(frozen=True, slots=True)
class OpenCommand:
    """Open the session.

    Attributes:
        model_hash: model expected; empty takes what is served.
        target_language: BCP-47 tag.
        attention_layer: decoder layer whose cross-attention is sent, from 1; 0 is the model's.
        attention_heads: heads whose mean is sent, from 1; empty means all.
        beam_size: hypotheses kept, up to 16; 0 and 1 mean greedy.
        session_id: unique, for logs.
    """

    model_hash: str
    target_language: str
    attention_layer: int
    attention_heads: tuple[int, ...]
    beam_size: int
    session_id: str


@dataclass(frozen=True, slots=True)
class StatesCommand:
    """Replace the encoder states.

    Attributes:
        block: the new states.
        first_changed: index of the first state that differs; only 0 is implemented.
    """

    block: StateBlock
    first_changed: int


@dataclass(frozen=True, slots=True)
class GenerateCommand:
    """Make a hypothesis.

    Attributes:
        generation_id: chosen by the caller, larger than the one before.
        states_id: the states to attend to; the last sent.
        prefix: committed tokens, without start and language tokens.
        draft: tokens expected after the prefix.
        max_new_tokens: most tokens after the prefix, 1 to 1024.
        forbid_end: never choose the end of sentence.
        read_at_s: monotonic clock when the command was read, in seconds.
        attention_layer: instead of that of open; 0 is that of open.
        attention_heads: instead of those of open, where `attention_layer` is set.
        beam_size: instead of that of open; 0 is that of open.
        all_hypotheses: tell the whole beam, not the best alone.
        prefix_attention: tell the cross-attention of the prefix's tokens, too.
        traceparent: the caller's span, or empty.
    """

    generation_id: int
    states_id: StatesId
    prefix: Sequence[int]
    draft: Sequence[int]
    max_new_tokens: int
    forbid_end: bool
    read_at_s: float
    attention_layer: int = 0
    attention_heads: tuple[int, ...] = ()
    beam_size: int = 0
    all_hypotheses: bool = False
    prefix_attention: bool = False
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class HaltCommand:
    """Stop a generation; unknown ids are ignored."""

    generation_id: int


Command = OpenCommand | StatesCommand | GenerateCommand | HaltCommand
