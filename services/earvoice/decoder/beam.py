"""Beam search with a forced prefix, as the papers' code does it (fairseq's generator).

Of the 2 x size best continuations those that end the sentence are finished where they are among
the first `size`, and the best `size` others go on. The search is over when `size` hypotheses are
finished, or at the limit, where what still goes on counts as it is.

A transducer's hypotheses are what one step of the source may bring, nothing included: they are
compared by their probability, longer ones with shorter ones (Liu 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from earvoice.decoder.greedy import (
    NEAR_TIE_LOGITS,
    Prefill,
    forbid,
    is_too_unlikely_to_end,
    overflowed,
)
from earvoice.decoder.strategy import BeamPlan, Hypothesis, PredictedToken, Progress, Prompt
from earvoice.models.vocabulary import EOS


@dataclass(frozen=True, slots=True)
class _Node:
    """A token of a hypothesis.

    Attributes:
        total: sum of log-probabilities up to and with it, forced tokens included.
        length: number of tokens up to and with it, forced tokens but for the start included.
        attention: [S] row of that step.
        parent: the token before; None for the last forced token, which stands for all of them.
    """

    token: int
    log_probability: float
    total: float
    length: int
    row: int
    attention: torch.Tensor
    parent: _Node | None

    def path(self) -> list[_Node]:
        """The nodes from the first after the forced tokens to this one."""
        nodes: list[_Node] = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class BeamRun:
    """One beam: its hypotheses so far, those finished, and keys and values.

    Args:
        cache: keys and values of what is forced; see `BeamCache`.
        forced_total: sum of log-probabilities of the forced tokens but for the start.
    """

    def __init__(
        self,
        prompt: Prompt,
        plan: BeamPlan,
        cache: Any,
        forced_total: float,
        prefix_attention: list[list[float]],
        *,
        is_transducer: bool = False,
    ) -> None:
        self.prompt = prompt
        self.cache = cache
        self._plan = plan
        self._prefix_attention = prefix_attention
        self._is_transducer = is_transducer
        self._forced_length = len(prompt.forced) - 1
        last, length = prompt.forced[-1], self._forced_length
        root = _Node(last, 0.0, forced_total, length, 0, torch.empty(0), None)
        self._live = [root]
        self._finished: list[_Node] = []

    @property
    def last_tokens(self) -> list[int]:
        return [node.token for node in self._live]

    def take(self, logits: torch.Tensor, rows: Sequence[torch.Tensor]) -> Progress:
        nodes = self._candidates(logits, rows)
        if not nodes:
            # Numbers have overflowed. An error would be one of the whole batch, whose other
            # searches have read their tokens already; so this one ends with what it has.
            leaves = [*self._finished, *self._live]
            return Progress([], self._ranked(leaves), self._prefix_attention)
        near_tie = any(a.total - b.total < NEAR_TIE_LOGITS for a, b in pairwise(nodes))
        size = self._plan.size
        ended = [node for node in nodes[:size] if node.token == EOS]
        self._finished += ended[: size - len(self._finished)]
        live = [node for node in nodes if node.token != EOS][:size]
        if len(self._finished) == size or not live:
            return Progress([], self._ranked(self._finished), self._prefix_attention, near_tie)
        if live[0].length - self._forced_length >= self._plan.max_new_tokens:
            capped = [*self._finished, *live]
            return Progress([], self._ranked(capped), self._prefix_attention, near_tie)
        self.cache.select([node.row for node in live])
        self._live = live
        return Progress([], [], [], near_tie)

    def _candidates(self, logits: torch.Tensor, rows: Sequence[torch.Tensor]) -> list[_Node]:
        log_probs = logits.log_softmax(-1)
        # The released code makes no empty hypothesis where nothing is forced but the start.
        is_empty = self._live[0].length == 0 and not self._is_transducer
        is_first = self._live[0].parent is None
        is_unlikely = is_first and is_too_unlikely_to_end(log_probs[0], self.prompt)
        forbid(log_probs, end=self.prompt.forbid_end or is_empty or is_unlikely)
        totals = log_probs.new_tensor([node.total for node in self._live])
        top = (
            (log_probs + totals[:, None])
            .flatten()
            .topk(min(2 * self._plan.size, log_probs.numel()))
        )
        numbers = torch.stack((log_probs.flatten()[top.indices], top.values)).tolist()
        nodes = []
        for place, log_probability, total in zip(top.indices.tolist(), *numbers, strict=True):
            row, token = divmod(place, log_probs.shape[1])
            parent = self._live[row]
            if total > -torch.inf:
                length = parent.length + 1
                nodes.append(_Node(token, log_probability, total, length, row, rows[row], parent))
        return nodes

    def _ranked(self, leaves: list[_Node]) -> list[Hypothesis]:
        best = sorted(leaves, key=lambda leaf: -self._score(leaf))
        wanted = self._plan.size if self._plan.all_hypotheses else 1
        return [
            Hypothesis(_tokens_of(leaf.path(), attended=rank == 0), self._score(leaf))
            for rank, leaf in enumerate(best[:wanted])
        ]

    def _score(self, leaf: _Node) -> float:
        return leaf.total if self._is_transducer else leaf.total / leaf.length


def begin_beam(
    prefill: Prefill,
    cache: Any,
    prompt: Prompt,
    plan: BeamPlan,
    *,
    is_transducer: bool,
) -> tuple[BeamRun, Progress]:
    """Read what is forced in one parallel pass, and start from one row."""
    forced = list(prompt.forced)
    logits, attention = prefill(forced, cache, prompt.attention_layer, prompt.attention_heads)
    last = len(forced) - 1
    if not bool(logits[last].logsumexp(-1).isfinite()):
        raise overflowed()
    prefix_rows = attention[last - prompt.reported_prefix_tokens : last].tolist()
    total = _forced_total(logits[:last], forced[1:])
    run = BeamRun(prompt, plan, cache.as_beam(), total, prefix_rows, is_transducer=is_transducer)
    return run, run.take(logits[last:], [attention[last]])


def _forced_total(logits: torch.Tensor, tokens: list[int]) -> float:
    picked = logits.log_softmax(-1).gather(1, torch.tensor(tokens, device=logits.device)[:, None])
    # A language's tag, or a name that was copied, may be on no shortlist now: that counts nothing.
    return float(picked[picked.isfinite()].sum())


def _tokens_of(path: Sequence[_Node], *, attended: bool) -> list[PredictedToken]:
    rows: list[list[float]] = [[]] * len(path)
    if attended:
        rows = torch.stack([node.attention for node in path]).tolist()
    return [
        PredictedToken(node.token, node.log_probability, row)
        for node, row in zip(path, rows, strict=True)
    ]
