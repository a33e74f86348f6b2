"""SP-n: commit what whole beams agree on (Nguyen 2021b; Polák 2022, equation 3)."""

from __future__ import annotations

from dataclasses import dataclass

from earvoice.policy.decisions.agreement import AgreementMemory
from earvoice.policy.decisions.base import (
    Decision,
    DecisionPolicy,
    Heard,
    Hypothesis,
    longest_common_prefix_tokens,
)
from earvoice.policy.decisions.snapshot import Snapshot


@dataclass(frozen=True)
class SharedPrefixParameters:
    """How SP-n decides.

    Attributes:
        n: segments whose beams must agree, 1 or more.
    """

    n: int = 1


class SharedPrefixPolicy(DecisionPolicy):
    """Commits the longest common prefix of all items of the last n beams (Polák 2022, equation 3).

    The forced prefix is common to all by construction: only what follows it is compared.
    """

    name = "shared_prefix"
    reads_beam = True

    def __init__(self, parameters: SharedPrefixParameters) -> None:
        self.parameters = parameters
        # Of a beam only what its items share can ever be agreed on.
        self._past = AgreementMemory(parameters.n - 1)

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Commit the agreement; nothing while there are fewer than n beams.

        Raises:
            ValueError: there are tokens, but no beam.
        """
        del heard
        if not hypothesis.alternatives:
            if hypothesis.tokens:
                raise ValueError("shared_prefix reads a beam, and the hypothesis has none")
            return Decision(0)
        items = hypothesis.alternatives
        shared = items[0][: longest_common_prefix_tokens(items)]
        return Decision(self._past.agree(hypothesis.prefix, [*hypothesis.prefix, *shared]))

    def forget_prefix(self, token_count: int) -> None:
        """Take the same tokens off the beams, which begin with the prefix that they had."""
        self._past.forget_prefix(token_count)

    def snapshot(self) -> Snapshot:
        """Return what the items of the last n - 1 beams share."""
        return self._past.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Take over what the items of the last n - 1 beams share.

        Raises:
            ValueError: it is none.
        """
        self._past.restore(snapshot)
