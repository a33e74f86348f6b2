"""A recorded case before our own policy objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from earvoice.evaluation.verification.policy_case import (
    AgreementCase,
    AttentionCase,
    CaseFile,
    PolicyCase,
    WaitKCase,
)
from earvoice.policy.decisions.align_att import AlignAttParameters, AlignAttPolicy
from earvoice.policy.decisions.base import Decision, DecisionPolicy, Heard, Hypothesis, Token
from earvoice.policy.decisions.edatt import EdattParameters, EdattPolicy
from earvoice.policy.decisions.local_agreement import (
    LocalAgreementParameters,
    LocalAgreementPolicy,
)
from earvoice.policy.decisions.wait_k import WaitKParameters, WaitKPolicy, words_decision
from earvoice.policy.words import CommitUnit, committable_count

# Neither is read by a policy that gets its rows from the case.
LAYER = 1
DURATION_MS = 1000.0


@dataclass(frozen=True)
class CaseDecision:
    """What our policy did with a case.

    Attributes:
        written: tokens written, a committed end of sentence included.
        word_count: words written so far, where the case counts them.
    """

    written: tuple[int, ...]
    word_count: int | None = None


class CaseDecider:
    """Shows recorded cases to our policies, with the options that reproduce the released agents.

    Args:
        file: tells which tokens begin words, and which ends the sentence.
    """

    def __init__(self, file: CaseFile) -> None:
        self._word_starts = file.word_starts
        self._end_token = file.end_token

    def decide(self, case: PolicyCase) -> CaseDecision:
        """Return what our policy writes."""
        match case:
            case AttentionCase():
                return self._decide_by_attention(case)
            case AgreementCase():
                return self._decide_by_agreement(case)
            case WaitKCase():
                return self._decide_by_words(case)

    def _decide_by_attention(self, case: AttentionCase) -> CaseDecision:
        policy = _attention_policy(case)
        state_count = case.rows.shape[1]
        heard = Heard(DURATION_MS, state_count)
        if not policy.wants_hypothesis(heard):
            return CaseDecision(())
        tokens = [
            self._token(token, tuple(row.tolist()))
            for token, row in zip(case.tokens, case.rows, strict=True)
        ]
        hypothesis = self._hypothesis(case.tokens[: case.prefix_count], tokens[case.prefix_count :])
        decision = policy.decide(heard, hypothesis)
        if case.drops_last_word:
            decision = Decision(
                committable_count(hypothesis, decision.new_token_count, CommitUnit.FOLLOWED_WORD)
            )
        return CaseDecision(self._written(hypothesis, decision))

    def _decide_by_agreement(self, case: AgreementCase) -> CaseDecision:
        policy = LocalAgreementPolicy(LocalAgreementParameters(n=2))
        heard = Heard(DURATION_MS, 1)
        *earlier, newest = case.hypotheses
        for tokens in earlier:
            policy.decide(heard, self._hypothesis((), [self._token(token) for token in tokens]))
        new = [self._token(token) for token in newest[case.prefix_count :]]
        hypothesis = self._hypothesis(newest[: case.prefix_count], new)
        return CaseDecision(self._written(hypothesis, policy.decide(heard, hypothesis)))

    def _decide_by_words(self, case: WaitKCase) -> CaseDecision:
        """Decide as wait-k; without our gate where no word is due: theirs has none."""
        hypothesis = self._hypothesis((), [self._token(token) for token in case.tokens])
        if not case.is_gated:
            decision = words_decision(hypothesis, case.due_word_count, commit_end=True)
            words = case.word_count_before + case.due_word_count
            return CaseDecision(self._written(hypothesis, decision), words)
        policy = WaitKPolicy(WaitKParameters(case.k, "adaptive", end_while_reading="commit"))
        policy.restore({"written_word_count": case.word_count_before})
        decision = policy.decide(Heard(DURATION_MS, 1, case.source_word_count), hypothesis)
        words = cast("int", policy.snapshot()["written_word_count"])
        return CaseDecision(self._written(hypothesis, decision), words)

    def _token(self, token: int, attention: tuple[float, ...] = ()) -> Token:
        return Token(token, b"", self._word_starts[token], attention)

    def _hypothesis(self, prefix: tuple[int, ...], tokens: list[Token]) -> Hypothesis:
        end = next((token for token in tokens if token.token_id == self._end_token), None)
        new = [token for token in tokens if token.token_id != self._end_token]
        return Hypothesis(prefix, new, end)

    def _written(self, hypothesis: Hypothesis, decision: Decision) -> tuple[int, ...]:
        tokens = tuple(token.token_id for token in hypothesis.tokens[: decision.new_token_count])
        return (*tokens, self._end_token) if decision.ends_utterance else tokens


def _attention_policy(case: AttentionCase) -> DecisionPolicy:
    # Only EDAtt 1.0 ends a translation while the source goes on.
    if case.kind == "edatt":
        return EdattPolicy(
            EdattParameters(
                case.alpha, case.frames, LAYER, allow_early_end=not case.drops_last_word
            )
        )
    return AlignAttPolicy(AlignAttParameters(case.frames, LAYER))
