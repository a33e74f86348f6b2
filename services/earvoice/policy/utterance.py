"""One utterance: what is committed, and what may follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from earvoice.policy.decisions.base import DecisionPolicy, Hypothesis, Token
from earvoice.policy.evidence import Evidence
from earvoice.policy.timeline import CommitTime
from earvoice.policy.words import CommittedToken, Word, WordAssembler


@dataclass(frozen=True)
class TokenOrigin:
    """Where a committed token came from.

    Attributes:
        source_start_sample: where the state it attends to begins.
        source_end_sample: where that state ends.
        commit_time: when it was committed.
    """

    source_start_sample: int
    source_end_sample: int
    commit_time: CommitTime


class Utterance:
    """The unit of reset.

    Args:
        index: from 0.
        start_sample: where it begins, counted from the session's first sample.
        policy: fresh.

    Attributes:
        prefix: committed tokens.
        draft: the uncommitted tail of the last hypothesis.
        sent_sample: audio before this has been sent to the encoder.
        segment_index: the segment worked on last, 0 for none.
        committed_word_count: tokens committed that begin a word.
        spoken_for_sample: committed tokens attend to audio up to here.
        is_closed: whether an end of sentence has been committed.
    """

    def __init__(self, index: int, start_sample: int, policy: DecisionPolicy) -> None:
        self.index = index
        self.start_sample = start_sample
        self.policy = policy
        self.prefix: list[int] = []
        self.draft: list[int] = []
        self.sent_sample = start_sample
        self.segment_index = 0
        self.committed_word_count = 0
        self.spoken_for_sample = start_sample
        self.is_closed = False
        self._assembler: WordAssembler[TokenOrigin] = WordAssembler()

    def commit(
        self,
        hypothesis: Hypothesis,
        new_token_count: int,
        evidence: Evidence,
        commit_time: CommitTime,
        *,
        flush: bool,
    ) -> list[Word[TokenOrigin]]:
        """Commit the first new tokens of a hypothesis and return the words that are complete.

        The rest of the hypothesis becomes the draft.

        Args:
            hypothesis: starts with ``prefix``.
            new_token_count: tokens to commit.
            evidence: of the revision that the hypothesis attends to.
            commit_time: now.
            flush: whether the last word is complete.
        """
        tokens = hypothesis.tokens[:new_token_count]
        committed = [
            CommittedToken(token, self._origin(token, evidence, commit_time)) for token in tokens
        ]
        self.prefix += [token.token_id for token in tokens]
        self.draft = [token.token_id for token in hypothesis.tokens[new_token_count:]]
        self.committed_word_count += sum(token.starts_word for token in tokens)
        self.spoken_for_sample = max(
            [self.spoken_for_sample, *(item.origin.source_end_sample for item in committed)]
        )
        return self._assembler.commit(committed, flush=flush)

    def _origin(self, token: Token, evidence: Evidence, commit_time: CommitTime) -> TokenOrigin:
        # Attention piles up on the last state whatever the token (Papi 2023, figure 2).
        row = token.attention[:-1] or token.attention
        state = max(range(len(row)), key=row.__getitem__)
        start, end = evidence.span(state, self.start_sample)
        return TokenOrigin(start, end, commit_time)


def tail_text(tokens: Sequence[Token]) -> str:
    """Return the text of tokens that may still change."""
    pieces = [b" " + token.text if token.starts_word else token.text for token in tokens]
    return b"".join(pieces).decode("utf8", errors="replace").strip()
