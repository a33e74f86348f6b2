"""Greedy and beam searches of many sessions, stepped together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from earvoice.decoder.state_block import ElementType, StateBlock
from earvoice.decoder.strategies.base import Opening, Progress, Strategy
from earvoice.decoder.strategies.beam import BeamRun, begin_beam
from earvoice.decoder.strategies.greedy import GreedyRun, begin_greedy, take_greedy
from earvoice.models.decoding import CachedDecoder
from earvoice.runtime.errors import InvalidFieldError

_DTYPES = {
    ElementType.FLOAT32: torch.float32,
    ElementType.BFLOAT16: torch.bfloat16,
    ElementType.FLOAT16: torch.float16,
}

Run = GreedyRun | BeamRun


class SearchStrategy(Strategy[Run]):
    """Searches as each opening says; every row of every run goes through the network at once.

    Args:
        decoder: the network, in evaluation mode.
        device: where its weights are.
    """

    def __init__(self, decoder: CachedDecoder, device: torch.device) -> None:
        self._decoder = decoder
        self._device = device

    @torch.inference_mode()
    def begin(self, states: StateBlock, opening: Opening) -> tuple[Run, Progress]:
        """Read what is forced; see `begin_greedy` and `begin_beam`."""
        cache = self._decoder.open_cache(self._tensor_of(states))
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
        greedy: list[tuple[int, GreedyRun, int]] = []
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

    def _tensor_of(self, states: StateBlock) -> torch.Tensor:
        """[S, d] float32 on the device."""
        # A bytearray, because torch warns of buffers that it could not write to.
        flat = torch.frombuffer(bytearray(states.data), dtype=_DTYPES[states.element_type])
        matrix = flat.view(states.state_count, states.dimension).float()
        if not bool(torch.isfinite(matrix).all()):
            raise InvalidFieldError("states.data", "NaN or infinity", "finite numbers")
        return matrix.to(self._device)
