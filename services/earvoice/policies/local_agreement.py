"""LA-n: commit what the last n hypotheses agree on (Liu 2020; Polák 2022, equation 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from earvoice.policies.agreement import AgreementPolicy
from earvoice.policies.base import Decision, Heard, Hypothesis
from earvoice.runtime.parameter import parameter


@dataclass(frozen=True)
class LocalAgreement(AgreementPolicy):
    """Commits the longest common token prefix of the last n hypotheses (Polák 2022, equation 2)."""

    name: ClassVar[str] = "local_agreement"

    n: int = parameter(2, minimum=2, maximum=64, help="hypotheses that must agree")

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        del heard
        return Decision(self.agree(hypothesis.prefix, hypothesis.token_ids))
