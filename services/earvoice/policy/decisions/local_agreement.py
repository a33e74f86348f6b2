"""LA-n: commit what the last n hypotheses agree on (Liu 2020; Polák 2022, equation 2)."""

from __future__ import annotations

from dataclasses import dataclass

from earvoice.policy.decisions.agreement import AgreementMemory
from earvoice.policy.decisions.base import Decision, DecisionPolicy, Heard, Hypothesis
from earvoice.policy.decisions.snapshot import Snapshot


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
        self._past = AgreementMemory(parameters.n - 1)

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Commit the agreement; nothing while there are fewer than n hypotheses."""
        del heard
        return Decision(self._past.agree(hypothesis.prefix, hypothesis.token_ids))

    def forget_prefix(self, token_count: int) -> None:
        """Take the same tokens off the hypotheses, which begin with the prefix that they had."""
        self._past.forget_prefix(token_count)

    def snapshot(self) -> Snapshot:
        """Return the last n - 1 hypotheses."""
        return self._past.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Take over the last n - 1 hypotheses.

        Raises:
            ValueError: they are none.
        """
        self._past.restore(snapshot)
