"""Recorded cases against our policies, one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from earvoice.evaluation.verification.case_decision import CaseDecider, CaseDecision
from earvoice.evaluation.verification.policy_case import (
    AgreementCase,
    CaseFile,
    PolicyCase,
    WaitKCase,
)


@dataclass(frozen=True)
class PolicyVerification:
    """What came of a file of cases.

    Attributes:
        differences: a line for each case that differs.
        case_counts: by kind.
        ungated_count: wait-k cases that write although no word is due.
    """

    differences: tuple[str, ...]
    case_counts: Counter[str]
    ungated_count: int

    def summary(self) -> str:
        """Return one line with the counts."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.case_counts.items()))
        ungated = f", {self.ungated_count} of them ungated" if self.ungated_count else ""
        return (
            f"{self.case_counts.total()} cases ({kinds}{ungated}), {len(self.differences)} differ"
        )


def verify_policy(file: CaseFile) -> PolicyVerification:
    """Let our policies decide every case and compare."""
    decider = CaseDecider(file)
    lines = [_difference(case, decider.decide(case), file.end_token) for case in file.cases]
    return PolicyVerification(
        tuple(line for line in lines if line),
        Counter(case.kind for case in file.cases),
        sum(isinstance(case, WaitKCase) and not case.is_gated for case in file.cases),
    )


def _difference(case: PolicyCase, decision: CaseDecision, end_token: int) -> str:
    recorded = case.written
    if isinstance(case, AgreementCase):
        # Their agreement may include the end of sentence; ours never does.
        recorded = tuple(token for token in recorded if token != end_token)
    found = []
    if decision.written != recorded:
        found.append(f"recorded {list(recorded)}, decided {list(decision.written)}")
    if isinstance(case, WaitKCase) and decision.word_count != case.word_count_after:
        found.append(f"recorded {case.word_count_after} words, counted {decision.word_count}")
    return f"{case.case_id}: {'; '.join(found)}" if found else ""
