"""EDAtt: stop at the first token that looks at the newest audio (Papi 2023, equation 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import ClassVar, Literal

from earvoice.policies.attention import (
    AttentionPolicy,
    early_end_parameter,
    heads_parameter,
    layer_parameter,
)
from earvoice.runtime.parameter import parameter

FAST_ALPHA, FAST_WAIT_MS = 0.6, 700.0
SLOW_ALPHA, SLOW_WAIT_MS = 0.03, 2300.0


def _alpha_at(_: Edatt, wait_ms: float) -> float:
    """Equal steps of lag are equal factors of alpha, as on the curves of Papi 2023.

    Measured with the shipped model.
    """
    slowness = (wait_ms - FAST_WAIT_MS) / (SLOW_WAIT_MS - FAST_WAIT_MS)
    return FAST_ALPHA * math.exp(slowness * math.log(SLOW_ALPHA / FAST_ALPHA))


@dataclass(frozen=True)
class Edatt(AttentionPolicy):
    """Encoder-decoder attention policy (Papi 2023, equation 1).

    Each new token's row loses its last state, is rescaled, and its last lambda entries are added
    up. At the first sum of alpha or more it stops; everything before is committed. ``l2`` divides a
    row by its Euclidean norm, as the released code does and the published thresholds assume.
    """

    name: ClassVar[str] = "edatt"

    alpha: float = parameter(
        None,
        minimum=0.0,
        maximum=1.0,
        model="default_alpha",
        lag=_alpha_at,
        help="threshold; larger speaks sooner",
    )
    lambda_states: int = parameter(
        None,
        minimum=1,
        maximum=64,
        unit="states",
        model="default_lambda_states",
        help="last states added up; fewer if there are fewer",
    )
    attention_layer: int = layer_parameter()
    normalization: Literal["l2", "l1"] = parameter(
        "l2", help="divide by the row's Euclidean norm, or by its sum"
    )
    allow_early_end: bool = early_end_parameter()
    attention_heads: tuple[int, ...] = heads_parameter()

    def looks_at_newest(self, attention: Sequence[float]) -> bool:
        return self.recent_attention(attention) >= self.alpha

    def recent_attention(self, attention: Sequence[float]) -> float:
        """Return the sum of a row's rescaled attention on the last lambda states but one."""
        kept = attention[:-1]
        scale = math.sqrt(sum(map(mul, kept, kept))) if self.normalization == "l2" else sum(kept)
        if scale <= 0.0:
            return 0.0
        return sum(kept[-self.lambda_states :]) / scale
