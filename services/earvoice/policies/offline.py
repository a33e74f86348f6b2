"""Offline: everything at the end of each utterance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from earvoice.policies.base import Decision, DecisionPolicy, Heard, Hypothesis


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
