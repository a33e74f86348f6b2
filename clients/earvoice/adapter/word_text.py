"""Words as the text and the tokens of the field's tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earvoice.client.event import CommittedWord


@dataclass(frozen=True)
class RewrittenTokens:
    """What words do to the tokens written so far.

    Attributes:
        deleted: tokens taken back from the end.
        new: tokens written then, a word each.
    """

    deleted: tuple[str, ...]
    new: tuple[str, ...]


class TokenWriter:
    """Writes a token for each word; a later piece of a word writes its token anew."""

    def __init__(self) -> None:
        self._last = ""

    def write(self, words: Sequence[CommittedWord]) -> RewrittenTokens:
        """Return what further words change."""
        before, new = self._last, [self._last] if self._last else []
        for word in words:
            if word.starts_word or not new:
                new.append(word.text)
            else:
                new[-1] += word.text
        self._last = new[-1] if new else ""
        if before and new[0] == before:
            return RewrittenTokens((), tuple(new[1:]))
        return RewrittenTokens((before,) if before else (), tuple(new))


def join_words(words: Sequence[CommittedWord]) -> str:
    """Return words as one text; a later piece of a word stands right behind it."""
    return "".join(f" {word.text}" if word.starts_word else word.text for word in words).strip()
