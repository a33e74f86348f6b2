"""SP-n: commit what whole beams agree on (Nguyen 2021b; Polák 2022, equation 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from earvoice.policies.agreement import AgreementPolicy
from earvoice.policies.base import Decision, Heard, Hypothesis, longest_common_prefix_tokens
from earvoice.runtime.parameter import parameter


@dataclass(frozen=True)
class SharedPrefix(AgreementPolicy):
    """Commits the longest common prefix of all items of the last n beams (Polák 2022, equation 3).

    The forced prefix is common to all by construction: only what follows it is compared. Of a beam
    only what its items share can ever be agreed on, and is remembered.
    """

    name: ClassVar[str] = "shared_prefix"
    reads_beam: ClassVar[bool] = True

    n: int = parameter(1, minimum=1, maximum=8, help="segments whose beams must agree")

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        del heard
        if not hypothesis.alternatives:
            if hypothesis.tokens:
                raise ValueError("shared_prefix reads a beam, and the hypothesis has none")
            return Decision(0)
        items = hypothesis.alternatives
        shared = [*hypothesis.prefix, *items[0][: longest_common_prefix_tokens(items)]]
        return Decision(self.agree(hypothesis.prefix, shared))
