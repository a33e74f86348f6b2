"""Greedy search by guessing: whole hypotheses are verified in one pass, many of them at once.

The service's decoder steps from token to token. Here nearly every hypothesis is known from the
revision before, or from another prefix, so it is guessed, verified by one pass of teacher forcing
and guessed again behind the first mistake. Each token is the most probable one behind those before
it, as in the service; up to near ties, the result is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch

from earvoice.decoder.strategies.choosable import forbid
from earvoice.evaluation.replay.continuation import Continuation
from earvoice.evaluation.replay.search import Search
from earvoice.evaluation.replay.search_batch import SearchBatch
from earvoice.models.decoding import CachedDecoder
from earvoice.models.vocabulary import EOS

MOST_ROWS = 64
"""Hypotheses in one pass: more gain nothing on a CPU."""

_SPARE_TOKENS = 16
_FULL_ENOUGH = 0.7
"""Rows that are over stay in the batch while so many others are not: copying costs, too."""

Memory = tuple[torch.Tensor, torch.Tensor]


class ParallelSearch:
    """Searches on one model.

    Args:
        decoder: the network, in evaluation mode, on the CPU.
        opening: start token and language tokens.
    """

    def __init__(self, decoder: CachedDecoder, opening: Sequence[int]) -> None:
        self._decoder = decoder
        self._opening = list(opening)

    @torch.inference_mode()
    def open_states(self, states: torch.Tensor) -> Memory:
        """Return keys and values of states [S, d], each [layers, heads, S, d_head]."""
        cache = self._decoder.open_cache(states)
        return cache.cross_keys, cache.cross_values

    def run(self, searches: Sequence[Search]) -> None:
        """Search until all are over.

        Args:
            searches: fresh.
        """
        # Rows of about the same length waste little on padding.
        order = sorted(searches, key=lambda search: len(search.prefix) + len(search.guess))
        for start in range(0, len(order), MOST_ROWS):
            self._run_batch(order[start : start + MOST_ROWS])

    @torch.inference_mode()
    def read(self, prefix: tuple[int, ...], tokens: Sequence[int], memory: Memory) -> Continuation:
        """Return a hypothesis that another search has found, with all of its attention.

        Args:
            prefix: forced.
            tokens: what was put behind it, 1 or more, the end of sentence included.
            memory: of the states.
        """
        inputs = [*self._opening, *prefix, *tokens[:-1]]
        hidden, weights = SearchBatch(self._decoder, [memory], len(inputs)).read([inputs])
        first = len(self._opening) - 1 + len(prefix)
        log_probabilities = self._decoder.logits(hidden[first:]).log_softmax(-1)
        chosen = log_probabilities.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        return Continuation(
            prefix,
            tuple(tokens),
            tokens[-1] == EOS,
            tuple(chosen.tolist()),
            weights[:, 0, :, first:].clone(),
        )

    @torch.inference_mode()
    def _run_batch(self, searches: Sequence[Search]) -> None:
        running = list(searches)
        inputs = [[*self._opening, *search.prefix] for search in running]
        capacity = max(
            len(row) + len(search.guess) + _SPARE_TOKENS
            for row, search in zip(inputs, running, strict=True)
        )
        batch = SearchBatch(self._decoder, [search.memory for search in running], capacity)
        while True:
            self._verify(batch, running, inputs)
            going_on = [row for row, search in enumerate(running) if not search.is_over]
            if not going_on:
                return
            if len(going_on) < _FULL_ENOUGH * len(running):
                batch.select(going_on)
                running = [running[row] for row in going_on]
            inputs = [[search.last_found] for search in running]

    def _verify(
        self, batch: SearchBatch, searches: Sequence[Search], inputs: Sequence[list[int]]
    ) -> None:
        """One pass: tokens that are certain but not read yet, and what is guessed behind them."""
        guesses = [[] if search.is_over else search.next_guess() for search in searches]
        rows = [[*own, *guess] for own, guess in zip(inputs, guesses, strict=True)]
        hidden, weights = batch.read(rows)
        firsts = [len(own) - 1 for own in inputs]
        tokens, log_probabilities = self._choose(searches, hidden, firsts, rows)
        kept: list[int] = []
        start = 0
        for row, (search, guess) in enumerate(zip(searches, guesses, strict=True)):
            first, end = firsts[row], start + len(guess) + 1
            right = 0
            if not search.is_over:
                right = search.take(guess, tokens[start:end], log_probabilities[start:end])
                own = weights[:, row, :, first : first + right + 1, : search.state_count]
                search.note_weights(own.clone())
            kept.append(first + 1 + right)
            start = end
        batch.keep(kept)

    def _choose(
        self,
        searches: Sequence[Search],
        hidden: torch.Tensor,
        firsts: Sequence[int],
        rows: Sequence[Sequence[int]],
    ) -> tuple[list[int], list[float]]:
        """Return the most probable tokens behind each place from the first on, row after row."""
        starts = [0, *accumulate(map(len, rows))]
        wanted = [
            hidden[start + first : end]
            for first, (start, end) in zip(firsts, pairwise(starts), strict=True)
        ]
        logits = self._decoder.logits(torch.cat(wanted))
        normalizers = logits.logsumexp(-1)
        forbid(logits, end=False)
        forbidden = torch.tensor(
            [
                search.forbid_end
                for search, first, row in zip(searches, firsts, rows, strict=True)
                for _ in range(first, len(row))
            ]
        )
        logits[forbidden, EOS] = -torch.inf
        best = logits.max(-1)
        return best.indices.tolist(), (best.values - normalizers).tolist()
