"""AlignAtt: stop at the first token that is aligned with the newest audio (Papi 2023b)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from earvoice.policy.decisions.attention import AttentionPolicy


@dataclass(frozen=True)
class AlignAttParameters:
    """How AlignAtt decides.

    Attributes:
        frames: f, how near to the last state an aligned state may be, in states, 1 or more;
            larger waits longer.
        attention_layer: decoder layer that is read, from 1.
        attention_heads: heads whose mean is read, from 1; empty means all.
        allow_early_end: commit an end of sentence before the end of the source.
    """

    frames: int
    attention_layer: int
    attention_heads: tuple[int, ...] = ()
    allow_early_end: bool = False


class AlignAttPolicy(AttentionPolicy):
    """Alignment policy (Papi 2023b).

    A token is aligned with the state that it attends to most, the last state left out. It stops at
    the first token whose state is number (S - 1) - f or a later one, counted from 0.
    """

    name = "align_att"

    def __init__(self, parameters: AlignAttParameters) -> None:
        super().__init__(allow_early_end=parameters.allow_early_end)
        self.parameters = parameters

    def looks_at_newest(self, attention: Sequence[float]) -> bool:
        """Say whether the most attended state is among the newest; the first of equals counts."""
        kept = attention[:-1]
        if not kept:
            return True
        aligned = max(range(len(kept)), key=kept.__getitem__)
        return aligned >= len(kept) - self.parameters.frames
