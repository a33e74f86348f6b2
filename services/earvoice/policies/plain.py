"""Policies that ask for no evidence: all of a hypothesis, all but its last tokens, nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from earvoice.policies.base import Decision, DecisionPolicy, Heard, Hypothesis
from earvoice.runtime.parameter import parameter

TOKEN_MS = 150.0
"""Audio for each token, measured with the shipped model."""


@dataclass(frozen=True)
class HoldN(DecisionPolicy):
    """Commits W[: max(|prefix|, |W| - n)] of the best hypothesis W (Polák 2022, equation 1).

    Liu 2020 holds back tokens like this.
    """

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


@dataclass(frozen=True)
class Transducer(DecisionPolicy):
    """Commits what the decoder wrote before its blank, which is the end of its hypothesis.

    The network itself says at each step when it has written enough (CAAT, Liu 2021).
    """

    name: ClassVar[str] = "transducer"

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        del heard
        return Decision(len(hypothesis.tokens))


@dataclass(frozen=True)
class Offline(DecisionPolicy):
    """Commits nothing before the end, where no policy is asked."""

    name: ClassVar[str] = "offline"
    commits_while_reading: ClassVar[bool] = False

    def wants_hypothesis(self, heard: Heard) -> bool:
        del heard
        return False

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        del heard, hypothesis
        return Decision(0)
