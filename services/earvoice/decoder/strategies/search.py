"""Greedy and beam searches of many sessions, stepped together."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch

from earvoice.decoder.state_block import StateBlock
from earvoice.decoder.strategies.base import Opening, Progress, Strategy
from earvoice.decoder.strategies.beam import BeamRun, begin_beam
from earvoice.decoder.strategies.greedy import GreedyRun, begin_greedy, take_greedy
from earvoice.decoder.strategies.state_tensor import state_tensor
from earvoice.models.decoding import CachedDecoder, DecoderCache

Run = GreedyRun[DecoderCache] | BeamRun
Memory = tuple[torch.Tensor, torch.Tensor]


class SearchStrategy(Strategy[Run]):
    """Searches as each opening says; every row of every run goes through the network at once.

    Args:
        decoder: the network, in evaluation mode.
        device: where its weights are.
    """

    def __init__(self, decoder: CachedDecoder, device: torch.device) -> None:
        self._decoder = decoder
        self._device = device
        self._memories: WeakKeyDictionary[StateBlock, Memory] = WeakKeyDictionary()

    @torch.inference_mode()
    def begin(self, states: StateBlock, opening: Opening) -> tuple[Run, Progress]:
        """Read what is forced; see `begin_greedy` and `begin_beam`."""
        cache = DecoderCache(*self._memory_of(states))
        if opening.beam is not None:
            return begin_beam(self._decoder, cache, opening, opening.beam)
        return begin_greedy(self._decoder, cache, opening)

    @torch.inference_mode()
    def step(self, runs: Sequence[Run]) -> list[Progress]:
        """Read each run's last tokens and go on from there."""
        counts = [run.cache.rows for run in runs]
        logits, rows = self._decoder.step(
            [token for run in runs for token in run.last_tokens],
            [run.cache for run in runs],
            [run.opening.attention_layer for run in runs],
            [run.opening.attention_heads for run in runs],
        )
        found: dict[int, Progress] = {}
        greedy: list[tuple[int, GreedyRun[DecoderCache], int]] = []
        first = 0
        for index, (run, count) in enumerate(zip(runs, counts, strict=True)):
            if isinstance(run, GreedyRun):
                greedy.append((index, run, first))
            else:
                own = slice(first, first + count)
                found[index] = run.take(logits[own], rows[own])
            first += count
        if greedy:
            indices, greedy_runs, places = zip(*greedy, strict=True)
            taken = take_greedy(greedy_runs, logits[[*places]], [rows[place] for place in places])
            found.update(zip(indices, taken, strict=True))
        return [found[index] for index in range(len(runs))]

    def _memory_of(self, states: StateBlock) -> Memory:
        """Keys and values of these states: computed once, shared by all that attends to them."""
        memory = self._memories.get(states)
        if memory is None:
            opened = self._decoder.open_cache(state_tensor(states).to(self._device))
            memory = self._memories[states] = (opened.cross_keys, opened.cross_values)
        return memory
