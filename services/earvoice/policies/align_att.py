"""AlignAtt: stop at the first token that is aligned with the newest audio (Papi 2023b)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from earvoice.policies.attention import (
    AttentionPolicy,
    early_end_parameter,
    heads_parameter,
    layer_parameter,
)
from earvoice.runtime.parameter import parameter

STATE_MS = 150.0
"""Audio for each encoder state, measured with the shipped model, which compresses."""


@dataclass(frozen=True)
class AlignAtt(AttentionPolicy):
    """Alignment policy (Papi 2023b).

    A token is aligned with the state that it attends to most, the last state left out. It stops at
    the first token whose state is number (S - 1) - f or a later one, counted from 0.
    """

    name: ClassVar[str] = "align_att"

    frames: int = parameter(
        None,
        minimum=1,
        maximum=256,
        unit="states",
        model="default_frames",
        lag=lambda _, wait_ms: wait_ms / STATE_MS,
        help="f, distance from the last state; larger waits longer",
    )
    attention_layer: int = layer_parameter()
    attention_heads: tuple[int, ...] = heads_parameter()
    allow_early_end: bool = early_end_parameter()

    def looks_at_newest(self, attention: Sequence[float]) -> bool:
        kept = attention[:-1]
        if not kept:
            return True
        aligned = max(range(len(kept)), key=kept.__getitem__)
        return aligned >= len(kept) - self.frames
