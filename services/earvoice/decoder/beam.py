"""Beam search with a forced prefix, as the papers' code does it (fairseq's generator).

Each step takes the 2 x size best continuations. Those among the first `size` that end the sentence
are finished; the best `size` of the others go on. The search is over when `size` hypotheses are
finished, or at the length limit, where unfinished hypotheses count as they are.

A transducer's hypotheses are what may be written at one step of the source, possibly nothing: they
are compared by probability, not normalised by length (Liu 2021).
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
    source_words,
)
from earvoice.decoder.strategy import BeamPlan, Hypothesis, PredictedToken, Progress, Prompt
from earvoice.models.decoding import likeliest
from earvoice.models.lexicon import (
    AT_THE_START,
    FIRST_PIECE,
    Mixture,
    Pending,
    mixtures_along,
)
from earvoice.models.vocabulary import EOS


@dataclass(frozen=True, slots=True)
class _Node:
    """A token of a hypothesis.

    Attributes:
        total: sum of log-probabilities up to and including it, forced tokens included.
        length: number of tokens up to and including it; forced tokens count, except the start.
        attention: [S] row of its step.
        parent: the previous token; None for the last forced token, which represents all of them.
        pending: where it leaves the hypothesis in the lexicon.
    """

    token: int
    log_probability: float
    total: float
    length: int
    row: int
    attention: torch.Tensor
    parent: _Node | None
    pending: Pending = AT_THE_START

    def path(self) -> list[_Node]:
        """The nodes from the first after the forced tokens to this one."""
        nodes: list[_Node] = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class BeamRun:
    """One beam: its live and finished hypotheses, and their keys and values.

    Args:
        cache: keys and values of the forced tokens; see `BeamCache`.
        forced_total: sum of log-probabilities of the forced tokens, except the start.
        pending: where the forced tokens leave the lexicon.
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
        pending: Pending = AT_THE_START,
    ) -> None:
        self.prompt = prompt
        self.cache = cache
        self._plan = plan
        self._prefix_attention = prefix_attention
        self._is_transducer = is_transducer
        self._forced_length = len(prompt.forced) - 1
        last, length = prompt.forced[-1], self._forced_length
        root = _Node(last, 0.0, forced_total, length, 0, torch.empty(0), None, pending)
        self._live = [root]
        self._finished: list[_Node] = []

    @property
    def last_tokens(self) -> list[int]:
        return [node.token for node in self._live]

    def take(self, logits: torch.Tensor, rows: Sequence[torch.Tensor]) -> Progress:
        nodes = self._candidates(logits, rows)
        if not nodes:
            # Numbers have overflowed. Raising would fail the whole batch, whose other searches
            # have already read their tokens; so this one ends with what it has.
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
        mixtures: list[Mixture] = []
        if (words := source_words(self.cache)) is not None:
            mixtures = [
                words.mixed(row, weights, node.pending)
                for row, weights, node in zip(logits, self.cache.alignment, self._live, strict=True)
            ]
            logits = torch.stack([mixture.scores for mixture in mixtures])
        log_probs = logits.log_softmax(-1)
        # The released code makes no empty hypothesis where only the start token is forced.
        is_empty = self._live[0].length == 0 and not self._is_transducer
        is_first = self._live[0].parent is None
        is_unlikely = is_first and is_too_unlikely_to_end(log_probs[0], self.prompt)
        forbid(log_probs, end=self.prompt.forbid_end or is_empty or is_unlikely)
        totals = log_probs.new_tensor([node.total for node in self._live])
        values, places = likeliest(
            (log_probs + totals[:, None]).view(1, -1),
            min(2 * self._plan.size, log_probs.numel()),
        )
        numbers = torch.stack((log_probs.flatten()[places[0]], values[0])).tolist()
        nodes = []
        for place, log_probability, total in zip(places[0].tolist(), *numbers, strict=True):
            row, token = divmod(place, log_probs.shape[1])
            parent = self._live[row]
            if total > -torch.inf:
                length = parent.length + 1
                pending = mixtures[row].after(token) if mixtures else AT_THE_START
                nodes.append(
                    _Node(token, log_probability, total, length, row, rows[row], parent, pending)
                )
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
    """Read the forced tokens in one parallel pass, and start the beam from one row."""
    forced = list(prompt.forced)
    logits, attention = prefill(forced, cache, prompt.attention_layer, prompt.attention_heads)
    last = len(forced) - 1
    if not bool(logits[last].logsumexp(-1).isfinite()):
        raise overflowed()
    prefix_rows = attention[last - prompt.reported_prefix_tokens : last].tolist()
    pending = AT_THE_START
    if (words := source_words(cache)) is not None and (text := forced[FIRST_PIECE:]):
        rows = slice(FIRST_PIECE - 1, last)
        mixtures = mixtures_along(words, logits[rows], cache.alignment[rows], text, pending)
        logits[rows] = torch.stack([mixture.scores for mixture in mixtures])
        pending = mixtures[-1].after(text[-1])
    total = _forced_total(logits[:last], forced[1:])
    run = BeamRun(
        prompt,
        plan,
        cache.as_beam(),
        total,
        prefix_rows,
        is_transducer=is_transducer,
        pending=pending,
    )
    return run, run.take(logits[last:], [attention[last]])


def _forced_total(logits: torch.Tensor, tokens: list[int]) -> float:
    picked = logits.log_softmax(-1).gather(1, torch.tensor(tokens, device=logits.device)[:, None])
    # A language tag, or a copied name, may be missing from the shortlist now; it adds nothing.
    return float(picked[picked.isfinite()].sum())


def _tokens_of(path: Sequence[_Node], *, attended: bool) -> list[PredictedToken]:
    rows: list[list[float]] = [[]] * len(path)
    if attended:
        rows = torch.stack([node.attention for node in path]).tolist()
    return [
        PredictedToken(node.token, node.log_probability, row)
        for node, row in zip(path, rows, strict=True)
    ]
