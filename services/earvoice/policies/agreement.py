"""LA-n and SP-n: commit what the last hypotheses, or beams, of an utterance agree on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from earvoice.policies.base import (
    Decision,
    DecisionPolicy,
    Heard,
    Hypothesis,
    Snapshot,
    Token,
    integers_in,
    longest_common_prefix_tokens,
)
from earvoice.runtime.parameter import parameter


@dataclass(frozen=True)
class AgreementPolicy(DecisionPolicy):
    """Commits what the last n hypotheses, or beams, agree on; speaks after n segments.

    Attributes:
        past: earlier hypotheses, each as all its token ids, forced prefix included.
    """

    n: int = parameter(minimum=1)
    past: list[list[int]] = field(init=False, repr=False, compare=False, default_factory=list)

    def agree(self, prefix: Sequence[int], current: Sequence[int]) -> int:
        """Return how many tokens after the prefix all agree on; 0 while there are too few.

        A past hypothesis that does not start with the prefix, after a change of policy or a cut
        loop, says nothing about it and is forgotten.
        """
        start, earlier_count = list(prefix), self.n - 1
        newest = self.past[-earlier_count:] if earlier_count else []
        earlier = [past for past in newest if past[: len(start)] == start]
        remembered = [*earlier, list(current)]
        self.past[:] = remembered[-earlier_count:] if earlier_count else []
        if len(earlier) < earlier_count:
            return 0
        return longest_common_prefix_tokens(remembered) - len(start)

    def segment_ms_at(self, lag_ms: float) -> float | None:
        return lag_ms / self.n

    def forget_prefix(self, token_count: int) -> None:
        self.past[:] = [past[token_count:] for past in self.past]

    def snapshot(self) -> Snapshot:
        """Return the newest hypothesis, and how many tokens each older one shares with it.

        No more is needed: what agrees with an older one has to agree with the newest, too.
        """
        if not self.past:
            return {"newest": None, "shared": []}
        *older, newest = self.past
        shared = [longest_common_prefix_tokens([past, newest]) for past in older]
        return {"newest": list(newest), "shared": shared}

    def restore(self, snapshot: Snapshot) -> None:
        shared = integers_in(snapshot, "shared")
        if snapshot.get("newest", shared) is None:
            self.past.clear()
            return
        newest = integers_in(snapshot, "newest")
        self.past[:] = [*(newest[:count] for count in shared), newest]


@dataclass(frozen=True)
class LocalAgreement(AgreementPolicy):
    """LA-n (Liu 2020): the longest common prefix of n hypotheses (Polák 2022, equation 2).

    The tokens compared of each may be limited; the decoder is halted there. Their last words may be
    held back, because a decoder invents words where the sound breaks off.
    """

    name: ClassVar[str] = "local_agreement"

    n: int = parameter(2, minimum=2, maximum=64, help="hypotheses that must agree")
    compared_tokens: int | None = parameter(
        None,
        minimum=1,
        maximum=1024,
        unit="tokens",
        default_text="all",
        help="tokens compared after the committed ones, plus the rest of the word",
    )
    held_words: int | None = parameter(
        None,
        minimum=1,
        maximum=64,
        unit="words",
        default_text="none",
        help="last words of a hypothesis that are held back, even if agreed on",
    )

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        # The beginning of the next word has to be seen, or this one could not be committed.
        most = self.compared_tokens
        return most is not None and token.starts_word and new_token_index >= most

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        del heard
        compared = self.undecided_count(hypothesis.tokens)
        count = len(hypothesis.prefix) + compared
        agreed = self.agree(hypothesis.prefix, hypothesis.token_ids[:count])
        # Where the decoder is halted, the token that halts it is all that is known of the rest.
        return Decision(min(agreed, self._let_go(hypothesis.tokens[: compared + 1])))

    def _let_go(self, tokens: Sequence[Token]) -> int:
        """Return how many new tokens come before the words that are held back."""
        if self.held_words is None:
            return len(tokens)
        starts = [index for index, token in enumerate(tokens) if token.starts_word]
        return starts[-self.held_words] if len(starts) >= self.held_words else 0


@dataclass(frozen=True)
class SharedPrefix(AgreementPolicy):
    """SP-n (Nguyen 2021b): the longest common prefix of n beams' items (Polák 2022, equation 3).

    The forced prefix is common to all by construction: only what follows it is compared. Only
    what a beam's items share can ever be agreed on, so only that is remembered.
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
