"""One greedy hypothesis that is looked for by guessing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from earvoice.evaluation.replay.continuation import Continuation
from earvoice.models.vocabulary import EOS

_REALIGNMENT_TOKENS = 6
"""How far behind a mistake the guess may take up the thread again."""

_REPEATED_TOKENS = 8
"""How much of what followed the same two tokens before is guessed again: models loop."""


@dataclass(eq=False)
class Search:
    """A hypothesis, its guess and what is certain of it.

    Attributes:
        prefix: forced, without start and language.
        guess: tokens that may follow what is found.
        limit: most tokens after the prefix, end of sentence included, 1 or more.
        forbid_end: never choose the end of sentence.
        memory: keys and values of the states, each [layers, heads, S, d_head].
    """

    prefix: tuple[int, ...]
    guess: Sequence[int]
    limit: int
    forbid_end: bool
    memory: tuple[torch.Tensor, torch.Tensor]
    _found: list[int] = field(default_factory=list)
    _log_probabilities: list[float] = field(default_factory=list)
    _weights: list[torch.Tensor] = field(default_factory=list)

    @property
    def state_count(self) -> int:
        """Number of encoder states."""
        return self.memory[0].shape[2]

    @property
    def last_found(self) -> int:
        """The newest certain token."""
        return self._found[-1]

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be found."""
        return len(self._found) >= self.limit or (bool(self._found) and self._found[-1] == EOS)

    def next_guess(self) -> list[int]:
        """Return what is verified next: never past the limit, never an end of sentence."""
        room = max(0, self.limit - 1 - len(self._found))
        guess = list(self.guess[:room]) or self._repetition()[:room]
        return guess[: guess.index(EOS)] if EOS in guess else guess

    def take(
        self, guess: Sequence[int], predicted: Sequence[int], log_probabilities: Sequence[float]
    ) -> int:
        """Keep a guess up to its first mistake, then what is right there.

        Args:
            guess: of ``next_guess``.
            predicted: the most probable token at each place of the guess, and behind it.
            log_probabilities: of ``predicted``.

        Returns:
            How much of the guess is right.
        """
        right = 0
        while right < len(guess) and predicted[right] == guess[right]:
            right += 1
        self._found += predicted[: right + 1]
        self._log_probabilities += log_probabilities[: right + 1]
        self.guess = _realigned(self.guess[right:], predicted[right])
        return right

    def note_weights(self, weights: torch.Tensor) -> None:
        """Keep [layers, heads, n, S] cross-attention of the tokens taken last."""
        self._weights.append(weights)

    def result(self) -> Continuation:
        """Return the hypothesis, once it is over."""
        return Continuation(
            self.prefix,
            tuple(self._found),
            self._found[-1] == EOS,
            tuple(self._log_probabilities),
            torch.cat(self._weights, dim=2),
        )

    def _repetition(self) -> list[int]:
        """Return what followed the last two tokens when they came before."""
        path = [*self.prefix, *self._found]
        for place in range(len(path) - 2, 1, -1):
            if path[place - 2 : place] == path[-2:]:
                return path[place : place + _REPEATED_TOKENS]
        return []


def _realigned(guess: Sequence[int], token: int) -> Sequence[int]:
    """Return what may follow a token that stands where the guess had another, or its next."""
    near = list(guess[:_REALIGNMENT_TOKENS])
    place = near.index(token) if token in near else 0
    return guess[place + 1 :]
