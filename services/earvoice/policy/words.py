"""Words out of tokens: where they end, and when their text may leave.

Which token begins a word is the decoder's knowledge (``starts_word``); nothing here looks at text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeVar

from earvoice.policy.decisions.base import Hypothesis, Token

Origin = TypeVar("Origin")


class CommitUnit(Enum):
    """What is committed at once."""

    WORD = "word"
    FOLLOWED_WORD = "followed-word"
    TOKEN = "token"  # noqa: S105 - a unit of text, no secret


def committable_count(
    hypothesis: Hypothesis, new_token_count: int, unit: CommitUnit, *, final: bool = False
) -> int:
    """Cut a count of new tokens back to what may be committed at once.

    Args:
        hypothesis: what the decoder found.
        new_token_count: tokens after the prefix that a policy would commit.
        unit: ``WORD`` cuts back to a word border of the hypothesis; ``FOLLOWED_WORD`` knows no more
            of the hypothesis than the policy accepted, so that the last word is never complete
            (the papers' agents 1.1); ``TOKEN`` cuts nothing.
        final: nothing will follow.
    """
    if unit is CommitUnit.TOKEN:
        return new_token_count
    if unit is CommitUnit.FOLLOWED_WORD and not final:
        accepted = hypothesis.tokens[:new_token_count]
        hypothesis = replace(hypothesis, tokens=accepted, end=None)
    return count_to_word_border(hypothesis, new_token_count, final=final)


def count_to_word_border(
    hypothesis: Hypothesis, new_token_count: int, *, final: bool = False
) -> int:
    """Cut a count of new tokens back to a word border.

    A border is a place after which the hypothesis itself begins a new word, or ends.

    Args:
        hypothesis: what the decoder found.
        new_token_count: tokens after the prefix that a policy would commit.
        final: nothing will follow, so the hypothesis ends even where a token limit cut it.

    Returns:
        The largest allowed count that is not above ``new_token_count``.
    """
    tokens = hypothesis.tokens
    if new_token_count >= len(tokens) and (hypothesis.ended or final):
        return len(tokens)
    count = min(new_token_count, len(tokens) - 1)
    while count > 0 and not tokens[count].starts_word:
        count -= 1
    return max(count, 0)


@dataclass(frozen=True)
class CommittedToken(Generic[Origin]):
    """A committed token and where it came from.

    Attributes:
        token: the token.
        origin: what the caller wants to know about it once its word is released.
    """

    token: Token
    origin: Origin


@dataclass(frozen=True)
class Word(Generic[Origin]):
    """A word, or a later piece of the word before.

    Attributes:
        text: without surrounding blanks, never empty.
        starts_word: whether a blank belongs before it.
        origins: of its tokens, in order.
    """

    text: str
    starts_word: bool
    origins: tuple[Origin, ...]


class WordAssembler(Generic[Origin]):
    """Joins committed tokens into words and holds back what is not complete.

    Args:
        held: held back already.
    """

    def __init__(self, held: Sequence[CommittedToken[Origin]] = ()) -> None:
        self._held = list(held)

    @property
    def held(self) -> Sequence[CommittedToken[Origin]]:
        """What is held back: the beginning of one word, or nothing."""
        return tuple(self._held)

    def commit(
        self, tokens: Sequence[CommittedToken[Origin]], *, flush: bool
    ) -> list[Word[Origin]]:
        """Add committed tokens and return the words that are complete.

        Args:
            tokens: newly committed.
            flush: release the last word too: it is known to be complete, or nothing more comes.
        """
        groups: list[list[CommittedToken[Origin]]] = []
        for item in [*self._held, *tokens]:
            if item.token.starts_word or not groups:
                groups.append([])
            groups[-1].append(item)
        self._held = []
        if groups and not flush:
            self._held = groups.pop()
        return [word for group in groups if (word := _word(group)) is not None]


def _word(group: Sequence[CommittedToken[Origin]]) -> Word[Origin] | None:
    # A model can write bytes that are no character; they are shown, not dropped.
    text = b"".join(item.token.text for item in group).decode("utf8", errors="replace").strip()
    if not text:
        return None
    return Word(text, group[0].token.starts_word, tuple(item.origin for item in group))
