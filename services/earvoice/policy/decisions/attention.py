"""What the policies that read cross-attention share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from earvoice.policy.decisions.base import Decision, DecisionPolicy, Heard, Hypothesis, Token


class AttentionPolicy(DecisionPolicy):
    """Stops at the first new token that looks at the newest audio; commits what comes before.

    Each new token is tested with the row of the step that predicts it; the prefix never is. The
    last state is dropped: attention piles up on it whatever the token (Papi 2023, figure 2).

    Args:
        allow_early_end: commit an end of sentence before the end of the source when it does not
            look at the newest audio either.
    """

    def __init__(self, *, allow_early_end: bool) -> None:
        self._allow_early_end = allow_early_end

    @abstractmethod
    def looks_at_newest(self, attention: Sequence[float]) -> bool:
        """Say whether a row of cross-attention, ``[S]``, looks at the newest audio."""

    def wants_hypothesis(self, heard: Heard) -> bool:
        """Read on while there is nothing besides the dropped state."""
        return heard.state_count > 1

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        """Halt at the first token that looks at the newest audio."""
        del new_token_index
        return self.looks_at_newest(token.attention)

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Commit what comes before the first such token."""
        del heard
        for index, token in enumerate(hypothesis.tokens):
            if self.looks_at_newest(token.attention):
                return Decision(index)
        return Decision(len(hypothesis.tokens), ends_utterance=self._commits_end(hypothesis.end))

    def _commits_end(self, end: Token | None) -> bool:
        if end is None or not self._allow_early_end:
            return False
        return not self.looks_at_newest(end.attention)
