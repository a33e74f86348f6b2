"""Offline: everything at the end of each utterance."""

from __future__ import annotations

from dataclasses import dataclass

from earvoice.policy.decisions.base import Decision, DecisionPolicy, Heard, Hypothesis


@dataclass(frozen=True)
class OfflineParameters:
    """Offline translation has nothing to choose."""


class OfflinePolicy(DecisionPolicy):
    """Commits nothing before the end, where no policy is asked."""

    name = "offline"

    def __init__(self, parameters: OfflineParameters) -> None:
        self.parameters = parameters

    def wants_hypothesis(self, heard: Heard) -> bool:
        """Decode nothing before the utterance has ended."""
        del heard
        return False

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Commit nothing."""
        del heard, hypothesis
        return Decision(0)
