"""Transducer: the network itself says at each step when it has written enough (CAAT, Liu 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from earvoice.policies.base import Decision, DecisionPolicy, Heard, Hypothesis


@dataclass(frozen=True)
class Transducer(DecisionPolicy):
    """Commits what the decoder wrote before its blank, which is the end of its hypothesis."""

    name: ClassVar[str] = "transducer"

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        del heard
        return Decision(len(hypothesis.tokens))
