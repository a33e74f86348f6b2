"""Recorded decisions of the papers' released code: what a policy was shown, and what it wrote."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class AttentionCase:
    """A decision that reads attention: EDAtt or AlignAtt.

    Attributes:
        case_id: its name in the file.
        kind: ``edatt`` or ``alignatt``.
        tokens: the hypothesis, prefix and end of sentence included.
        prefix_count: leading tokens that are committed already.
        frames: lambda of EDAtt, f of AlignAtt, in states.
        alpha: threshold of EDAtt.
        rows: cross-attention, a row ``[state]`` for each token.
        drops_last_word: whether the agent (1.1) commits no more than the words before the last one
            accepted.
        written: tokens written; end of sentence included where the agent ends early.
    """

    case_id: str
    kind: str
    tokens: tuple[int, ...]
    prefix_count: int
    frames: int
    alpha: float
    rows: NDArray[np.float32]
    drops_last_word: bool
    written: tuple[int, ...]

    @property
    def shown_tokens(self) -> tuple[int, ...]:
        """All tokens that the policy is shown."""
        return self.tokens


@dataclass(frozen=True)
class AgreementCase:
    """A decision of local agreement.

    Attributes:
        case_id: its name in the file.
        kind: ``la``.
        hypotheses: of the segments so far, the newest last, end of sentence included.
        prefix_count: leading tokens that are committed already.
        written: the agreed tokens after the prefix.
    """

    case_id: str
    kind: str
    hypotheses: tuple[tuple[int, ...], ...]
    prefix_count: int
    written: tuple[int, ...]

    @property
    def shown_tokens(self) -> tuple[int, ...]:
        """All tokens that the policy is shown."""
        return tuple(token for past in self.hypotheses for token in past)


@dataclass(frozen=True)
class WaitKCase:
    """A decision of wait-k's inner function, which has no gate.

    Attributes:
        case_id: its name in the file.
        kind: ``waitk``.
        k: words to wait.
        tokens: the hypothesis after the prefix, end of sentence included.
        source_word_count: words heard.
        word_count_before: words written before.
        word_count_after: and after.
        written: tokens written, an early end of sentence included.
    """

    case_id: str
    kind: str
    k: int
    tokens: tuple[int, ...]
    source_word_count: int
    word_count_before: int
    word_count_after: int
    written: tuple[int, ...]

    @property
    def shown_tokens(self) -> tuple[int, ...]:
        """All tokens that the policy is shown."""
        return self.tokens

    @property
    def due_word_count(self) -> int:
        """Words due by the rule, possibly negative."""
        return self.source_word_count - self.word_count_before - self.k

    @property
    def is_gated(self) -> bool:
        """Whether a word is due; only then does a whole agent ask the function."""
        return self.due_word_count > 0


PolicyCase = AttentionCase | AgreementCase | WaitKCase


@dataclass(frozen=True)
class CaseFile:
    """Cases of one vocabulary.

    Attributes:
        end_token: end of sentence.
        word_starts: by token id, whether the token begins a word.
        cases: in the order of the file.
    """

    end_token: int
    word_starts: tuple[bool, ...]
    cases: tuple[PolicyCase, ...]
