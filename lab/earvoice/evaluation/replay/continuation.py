"""What greedy search puts behind a forced prefix, remembered so that it is never searched twice.

Greedy search has no memory but its tokens: if it puts ``h`` behind the prefix ``P``, then it puts
``h[i:]`` behind ``P + h[:i]``. So one search answers for every prefix on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from earvoice.decoder.model import TokenTable
from earvoice.evaluation.replay.setting import AttentionView
from earvoice.policy.decisions.base import Token


@dataclass(frozen=True)
class AttentionChoice:
    """Which cross-attention a policy is shown.

    Attributes:
        layer: decoder layer, from 1.
        heads: whose mean is shown, from 1; empty means all.
        view: see `AttentionView`.
    """

    layer: int
    heads: tuple[int, ...] = ()
    view: AttentionView = "one-layer"

    def rows(self, weights: torch.Tensor) -> torch.Tensor:
        """[layers, heads, n, S] weights → [n, S], or [n, S + 1] with the last state kept."""
        if self.view == "mean-over-layers":
            return self._mean_of_heads(weights).mean(0)
        rows = self._mean_of_heads(weights[self.layer - 1 : self.layer])[0]
        if self.view == "with-the-last-state":
            return torch.nn.functional.pad(rows, (0, 1))
        return rows

    def _mean_of_heads(self, weights: torch.Tensor) -> torch.Tensor:
        chosen = weights[:, [head - 1 for head in self.heads]] if self.heads else weights
        return chosen.mean(1)


@dataclass(frozen=True)
class Continuation:
    """A greedy hypothesis behind its prefix.

    Attributes:
        prefix: forced.
        tokens: what was chosen, the end of sentence included where it was reached.
        ended: whether the last of them is the end of sentence.
        log_probabilities: of ``tokens``.
        weights: [layers, heads, len(tokens), S] float32, cross-attention of the steps that predict
            them.
    """

    prefix: tuple[int, ...]
    tokens: tuple[int, ...]
    ended: bool
    log_probabilities: tuple[float, ...]
    weights: torch.Tensor
    _shown: dict[AttentionChoice, list[Token]] = field(default_factory=dict, repr=False)

    def shown(self, choice: AttentionChoice, table: TokenTable) -> list[Token]:
        """Return the tokens as a policy sees them, the end of sentence included."""
        if choice not in self._shown:
            rows = choice.rows(self.weights).tolist()
            self._shown[choice] = [
                Token(token, table.texts[token], table.starts_word[token], row, log_probability)
                for token, row, log_probability in zip(
                    self.tokens, rows, self.log_probabilities, strict=True
                )
            ]
        return self._shown[choice]


class ContinuationMemo:
    """The continuations found on one revision, for one rule about the end of sentence."""

    def __init__(self) -> None:
        # By every prefix on a continuation's way: the continuation, and its tokens before there.
        self._ways: dict[tuple[int, ...], tuple[Continuation, int]] = {}
        self._found: list[Continuation] = []

    @property
    def found(self) -> Sequence[Continuation]:
        """The continuations, as they were added."""
        return self._found

    def find(self, prefix: tuple[int, ...], count: int) -> tuple[Continuation, int] | None:
        """Return a continuation that knows what follows a prefix.

        Args:
            prefix: forced.
            count: how many tokens must be known, unless the sentence ends before.

        Returns:
            It, and how many of its tokens belong to the prefix; None if there is none.
        """
        found = self._ways.get(prefix)
        if found is None:
            return None
        continuation, passed = found
        enough = continuation.ended or len(continuation.tokens) - passed >= count
        return found if enough else None

    def add(self, continuation: Continuation) -> tuple[Continuation, int]:
        """Remember a continuation, and return it as `find` does for its own prefix."""
        self._found.append(continuation)
        open_count = len(continuation.tokens) - continuation.ended
        for passed in range(open_count + 1):
            way = continuation.prefix + continuation.tokens[:passed]
            self._ways[way] = (continuation, passed)
        return continuation, 0

    def guess(self, prefix: tuple[int, ...]) -> tuple[int, ...]:
        """Return what might follow a prefix: what follows in the hypothesis that is most like it.

        It is verified, not trusted.
        """
        best: tuple[int, ...] = ()
        most = -1
        for continuation in self._found:
            path = continuation.prefix + continuation.tokens
            shared = _shared_count(path, prefix)
            if shared > most:
                best, most = path[len(prefix) :], shared
        return best


def _shared_count(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return index
    return min(len(first), len(second))
