"""Greedy search by a decoder of another family, draft verification included."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from earvoice.decoder.state_block import StateBlock
from earvoice.decoder.strategies.base import Opening, Progress, Strategy
from earvoice.decoder.strategies.greedy import GreedyRun, begin_greedy, take_greedy
from earvoice.decoder.strategies.state_tensor import state_tensor
from earvoice.models.wrapped.decoder import WrappedCache, WrappedDecoder
from earvoice.runtime.errors import InvalidFieldError

Run = GreedyRun[WrappedCache]


class WrappedStrategy(Strategy[Run]):
    """Steps one run after the other: `transformers` batches only what is of one length.

    Args:
        decoder: the model's.
    """

    def __init__(self, decoder: WrappedDecoder) -> None:
        self._decoder = decoder

    @torch.inference_mode()
    def begin(self, states: StateBlock, opening: Opening) -> tuple[Run, Progress]:
        """Read what is forced and verify the draft; see `begin_greedy`."""
        if opening.beam is not None:
            raise InvalidFieldError("generate.beam_size", opening.beam.size, "1 with this model")
        cache = self._decoder.open_cache(state_tensor(states))
        return begin_greedy(self._decoder, cache, opening)

    @torch.inference_mode()
    def step(self, runs: Sequence[Run]) -> list[Progress]:
        """Read each run's last token and go on from there."""
        logits, rows, lengths = [], [], [run.cache.length for run in runs]
        try:
            for run in runs:
                opening = run.opening
                row, attention = self._decoder.prefill(
                    run.last_tokens, run.cache, opening.attention_layer, opening.attention_heads
                )
                logits.append(row)
                rows.append(attention[0])
        except Exception:
            # A run whose step raised can be stepped again: none of them has read its token.
            for run, length in zip(runs, lengths, strict=True):
                run.cache.truncate(min(length, run.cache.length))
            raise
        return take_greedy(runs, torch.cat(logits), rows)
