"""Hold-n: hold back the last n tokens (Liu 2020; Polák 2022, equation 1)."""

from __future__ import annotations

from dataclasses import dataclass

from earvoice.policy.decisions.base import Decision, DecisionPolicy, Heard, Hypothesis


@dataclass(frozen=True)
class HoldNParameters:
    """How Hold-n decides.

    Attributes:
        n: tokens held back, 0 or more.
    """

    n: int = 6


class HoldNPolicy(DecisionPolicy):
    """Commits W[: max(|prefix|, |W| - n)] of the best hypothesis W (Polák 2022, equation 1)."""

    name = "hold_n"

    def __init__(self, parameters: HoldNParameters) -> None:
        self.parameters = parameters

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Commit all but the last n tokens."""
        del heard
        return Decision(max(0, len(hypothesis.tokens) - self.parameters.n))
