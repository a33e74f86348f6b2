"""EDAtt: stop at the first token that looks at the newest audio (Papi 2023, equation 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from earvoice.policy.decisions.attention import AttentionPolicy

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
        attention_heads: heads whose mean is read, from 1; empty means all.
    """

    alpha: float
    lambda_states: int
    attention_layer: int
    normalization: Normalization = "l2"
    allow_early_end: bool = False
    attention_heads: tuple[int, ...] = ()


class EdattPolicy(AttentionPolicy):
    """Encoder-decoder attention policy (Papi 2023, equation 1).

    Each new token's row loses its last state, is rescaled, and its last lambda entries are added
    up. At the first sum of alpha or more it stops; everything before is committed.
    """

    name = "edatt"

    def __init__(self, parameters: EdattParameters) -> None:
        super().__init__(allow_early_end=parameters.allow_early_end)
        self.parameters = parameters

    def looks_at_newest(self, attention: Sequence[float]) -> bool:
        """Say whether the rescaled attention on the last lambda states reaches alpha."""
        return self.recent_attention(attention) >= self.parameters.alpha

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
