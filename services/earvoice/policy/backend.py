"""What a session needs from the encoder and the decoder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from earvoice.policies.base import Token
from earvoice.policy.evidence import Evidence
from earvoice.policy.timeline import HopTimings


@dataclass(frozen=True)
class Encoded:
    """An encoder's answer; its states are passed on to the decoder unread."""

    states: object
    evidence: Evidence
    timings: HopTimings


@dataclass(frozen=True)
class GenerationSteps:
    """Tokens that became known together.

    Attributes:
        alternatives: new token ids of every hypothesis of the beam, best first, the best included,
            ends of sentence excluded; empty when the search was greedy or they were not asked for.
        prefix_attention: in the first answer, if asked for: a row for each token of the prefix.
        restarts: whether any earlier tokens no longer count: the generation begins with these,
            perhaps again, on another replica after one was lost.
        source: in the first answer, the text in the source language that is translated, if any.
    """

    tokens: Sequence[Token]
    end: Token | None
    timings: HopTimings
    alternatives: Sequence[Sequence[int]] = ()
    prefix_attention: Sequence[Sequence[float]] = ()
    restarts: bool = False
    source: Sequence[Token] = ()


@dataclass(frozen=True)
class GenerationEnd:
    """A generation's end, possibly at its token limit."""

    hit_limit: bool
    timings: HopTimings


@dataclass(frozen=True)
class GenerationRequest:
    """What to decode.

    Attributes:
        beam_size: hypotheses to follow; 1 is greedy search.
        attention_layer: decoder layer whose cross-attention is sent, from 1; 0 is as opened.
        attention_heads: heads whose mean is sent, from 1; empty is all, or as opened with layer 0.
    """

    states: object
    prefix: Sequence[int]
    draft: Sequence[int]
    max_new_tokens: int
    forbid_end: bool = False
    beam_size: int = 1
    attention_layer: int = 0
    attention_heads: Sequence[int] = ()
    all_hypotheses: bool = False
    prefix_attention: bool = False


class EncoderBackend(Protocol):
    @property
    def replay_count(self) -> int:
        """How often it went on elsewhere because a replica was lost."""

    async def encode(self, audio: bytes, end_sample: int | None = None) -> Encoded:
        """Add audio to the utterance and return the next revision.

        Args:
            end_sample: where the utterance ends, with its last revision; None while it goes on.
        """

    async def reset(self, utterance: int, start_sample: int) -> None:
        """Forget the utterance and begin another."""


class DecoderBackend(Protocol):
    @property
    def replay_count(self) -> int:
        """How often it went on elsewhere because a replica was lost."""

    def generate(
        self, request: GenerationRequest
    ) -> AsyncIterator[GenerationSteps | GenerationEnd]:
        """Decode; yields steps, then one end, which may be missing after a halt."""

    def halt(self) -> None:
        """Ask the running generation to stop; its end still comes."""

    async def keep_alive(self) -> None:
        """Show that the session is alive although there is nothing to decode."""
