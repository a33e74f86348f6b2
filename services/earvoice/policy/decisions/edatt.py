"""EDAtt: stop at the first token that looks at the newest audio (Papi 2023, equation 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from earvoice.policy.decisions.base import Decision, DecisionPolicy, Heard, Hypothesis, Token

Normalization = Literal["l2", "l1"]


@dataclass(frozen=True)
class EdattParameters:
    """How EDAtt decides.

    Attributes:
        alpha: threshold, 0 to 1; larger speaks sooner. 0.6 (fast) to 0.03 (slow) in the paper.
        lambda_states: how many last states are added up, 1 or more.
        attention_layer: decoder layer that is read, from 1.
        normalization: ``l2`` divides a row by its Euclidean norm, as the released code does and
            the published thresholds assume; ``l1`` by its sum.
        allow_early_end: commit an end of sentence before the end of the source.
    """

    alpha: float
    lambda_states: int
    attention_layer: int
    normalization: Normalization = "l2"
    allow_early_end: bool = False


class EdattPolicy(DecisionPolicy):
    """Encoder-decoder attention policy (Papi 2023, equation 1).

    Each new token's row loses its last state (attention piles up there, figure 2), is rescaled,
    and its last lambda entries are added up. At the first sum of alpha or more it stops;
    everything before is committed.
    """

    name = "edatt"

    def __init__(self, parameters: EdattParameters) -> None:
        self.parameters = parameters

    def wants_hypothesis(self, heard: Heard) -> bool:
        """Read on while there is nothing besides the dropped state."""
        return heard.state_count > 1

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        """Halt at the first token that looks at the newest audio."""
        del new_token_index
        return self.recent_attention(token.attention) >= self.parameters.alpha

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Commit what comes before the first such token."""
        del heard
        for index, token in enumerate(hypothesis.tokens):
            if self.is_decided(token, index):
                return Decision(index)
        return Decision(len(hypothesis.tokens), ends_utterance=self._commits_end(hypothesis.end))

    def _commits_end(self, end: Token | None) -> bool:
        if end is None or not self.parameters.allow_early_end:
            return False
        return self.recent_attention(end.attention) < self.parameters.alpha

    def recent_attention(self, attention: Sequence[float]) -> float:
        """Return the rescaled attention on the last lambda states but one.

        Args:
            attention: a row of cross-attention, ``[S]``.

        Returns:
            The sum; 0 when nothing is left to look at.
        """
        kept = attention[:-1]
        if self.parameters.normalization == "l2":
            scale = math.sqrt(sum(weight * weight for weight in kept))
        else:
            scale = sum(kept)
        if scale <= 0.0:
            return 0.0
        return sum(kept[-self.parameters.lambda_states :]) / scale
