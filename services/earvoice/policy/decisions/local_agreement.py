"""LA-n: commit what the last n hypotheses agree on (Liu 2020; Polák 2022, equation 2)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from earvoice.policy.decisions.base import (
    Decision,
    DecisionPolicy,
    Heard,
    Hypothesis,
    longest_common_prefix_tokens,
)
from earvoice.policy.decisions.snapshot import Snapshot, token_lists


@dataclass(frozen=True)
class LocalAgreementParameters:
    """How LA-n decides.

    Attributes:
        n: hypotheses that must agree, 2 or more.
    """

    n: int = 2


class LocalAgreementPolicy(DecisionPolicy):
    """Commits the longest common token prefix of the last n hypotheses (Polák 2022, equation 2)."""

    name = "local_agreement"

    def __init__(self, parameters: LocalAgreementParameters) -> None:
        self.parameters = parameters
        self._history: deque[list[int]] = deque(maxlen=parameters.n - 1)

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Commit the agreement; nothing while there are fewer than n hypotheses.

        A hypothesis of the past that does not start with the prefix, after a change of policy or
        a cut loop, says nothing about it and is forgotten.
        """
        del heard
        prefix, current = list(hypothesis.prefix), hypothesis.token_ids
        earlier = [past for past in self._history if past[: len(prefix)] == prefix]
        self._history = deque([*earlier, current], maxlen=self.parameters.n - 1)
        if len(earlier) < self.parameters.n - 1:
            return Decision(0)
        agreed = longest_common_prefix_tokens([*earlier, current])
        return Decision(agreed - len(prefix))

    def forget_prefix(self, token_count: int) -> None:
        """Take the same tokens off the hypotheses, which begin with the prefix that they had."""
        shorter = (past[token_count:] for past in self._history)
        self._history = deque(shorter, maxlen=self.parameters.n - 1)

    def snapshot(self) -> Snapshot:
        """Return the last n - 1 hypotheses."""
        return {"history": [list(past) for past in self._history]}

    def restore(self, snapshot: Snapshot) -> None:
        """Take over the last n - 1 hypotheses.

        Raises:
            ValueError: there is no list of token lists.
        """
        history = token_lists(snapshot.get("history"))
        self._history = deque(history, maxlen=self.parameters.n - 1)
