"""Hold-n: hold back the last n tokens (Liu 2020; Polák 2022, equation 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from earvoice.policies.base import Decision, DecisionPolicy, Heard, Hypothesis
from earvoice.runtime.parameter import parameter

TOKEN_MS = 150.0
"""Audio for each token, measured with the shipped model."""


@dataclass(frozen=True)
class HoldN(DecisionPolicy):
    """Commits W[: max(|prefix|, |W| - n)] of the best hypothesis W (Polák 2022, equation 1)."""

    name: ClassVar[str] = "hold_n"

    n: int = parameter(
        6,
        minimum=0,
        maximum=64,
        unit="tokens",
        lag=lambda _, wait_ms: wait_ms / TOKEN_MS,
        help="tokens held back",
    )

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        del heard
        return Decision(max(0, len(hypothesis.tokens) - self.n))
