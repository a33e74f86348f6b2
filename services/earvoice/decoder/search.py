"""Greedy and beam searches of many sessions, by our own decoder or by one of another family."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import torch

from earvoice.api.v1 import types_pb2
from earvoice.decoder.beam import BeamRun, begin_beam
from earvoice.decoder.greedy import GreedyRun, begin_greedy, take_greedy
from earvoice.decoder.strategy import PredictedToken, Progress, Prompt, StateBlock, Strategy
from earvoice.models.decoding import CachedDecoder, DecoderCache, Pivot
from earvoice.models.lstm import LstmDecoder
from earvoice.models.vocabulary import EOS
from earvoice.runtime.errors import InvalidFieldError

if TYPE_CHECKING:
    # It needs `transformers`, which not every service has.
    from earvoice.models.wrapped.decoder import WrappedDecoder

Run = GreedyRun | BeamRun

PIVOT_TOKENS_PER_STATE = 0.5
"""A text to be translated is cut there: nobody says twelve pieces a second."""
LEAST_PIVOT_TOKENS = 16


class SearchStrategy(Strategy):
    """Searches as each prompt says; every row of every run goes through the network at once."""

    def __init__(self, decoder: CachedDecoder | WrappedDecoder) -> None:
        self._decoder = decoder
        self.source_prompt = decoder.pivot_prompt
        self._memories: WeakKeyDictionary[StateBlock, dict[Hashable, Any]] = WeakKeyDictionary()

    @torch.inference_mode()
    def begin(self, states: StateBlock, prompt: Prompt) -> tuple[Run, Progress]:
        cache, prefill = self.memory_of(states, prompt.forced).fresh(), self._decoder.prefill
        run: Run
        if prompt.beam is None:
            run, progress = begin_greedy(prefill, cache, prompt)
        else:
            is_transducer = self._decoder.is_transducer
            plan = prompt.beam
            run, progress = begin_beam(prefill, cache, prompt, plan, is_transducer=is_transducer)
        return run, replace(progress, source=_source_of(cache))

    @torch.inference_mode()
    def step(self, runs: Sequence[Run]) -> list[Progress]:
        counts = [run.cache.rows for run in runs]
        logits, rows = self._decoder.step(
            [token for run in runs for token in run.last_tokens],
            [run.cache for run in runs],
            [run.prompt.attention_layer for run in runs],
            [run.prompt.attention_heads for run in runs],
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

    def memory_of(self, states: StateBlock, tokens: Sequence[int]) -> Any:
        """Keys and values of these states: computed once, shared by all that attends to them."""
        known, decoder = self._memories.setdefault(states, {}), self._decoder
        is_translated = decoder.is_translated(tokens)
        is_begun = is_translated and len(tokens) > len(self.source_prompt)
        key = decoder.stack_of(tokens), is_begun
        if key not in known:
            pivot = self._written(states, is_begun=is_begun) if is_translated else None
            known[key] = decoder.open_cache(state_tensor(states), tokens, pivot)
        return known[key]

    def _written(self, states: StateBlock, *, is_begun: bool) -> Pivot:
        """Greedy search in the source language: what was written of the states before is a draft.

        Args:
            is_begun: of what something has been said; it is not empty.
        """
        most = LEAST_PIVOT_TOKENS + int(PIVOT_TOKENS_PER_STATE * states.message.state_count)
        config = cast("CachedDecoder", self._decoder).config  # others translate nothing
        if config.decoder.max_new_tokens is not None:
            most = min(most, config.decoder.max_new_tokens)
        reads = config.policy_defaults
        prompt = Prompt(
            self.source_prompt,
            tuple(states.source_text[: most - 1]),
            reads.attention_layer,
            forbid_end=False,
            attention_heads=reads.attention_heads,
            least_end_probability=(
                config.decoder.least_empty_probability if states.message.final else 0.0
            ),
        )
        run, progress = self.begin(states, prompt)
        written = progress.tokens
        if is_begun and written[0].token == EOS:
            written = self.begin(states, replace(prompt, draft=(), forbid_end=True))[1].tokens
            prompt = replace(prompt, forced=(*prompt.forced, written[0].token), draft=())
            run, progress = self.begin(states, prompt)
            written += progress.tokens
        while written[-1].token != EOS and len(written) < most:
            written += self.step([run])[0].tokens
        states.source_text[:] = [choice.token for choice in written]
        sure = [choice.log_probability for choice in written]
        rows = torch.tensor([choice.attention for choice in written])
        return Pivot([*states.source_text], sure, rows.to(run.cache.cross_keys.device))


def _source_of(cache: Any) -> list[PredictedToken]:
    if not isinstance(cache, DecoderCache) or cache.pivot is None:
        return []
    written = zip(cache.pivot.tokens, cache.pivot.log_probabilities, strict=True)
    return [PredictedToken(token, sure, []) for token, sure in written]


class SequentialStrategy(Strategy):
    """Greedy search, one run after the other, by a decoder that steps one hypothesis at a time."""

    def __init__(self, decoder: LstmDecoder) -> None:
        self._decoder = decoder

    @torch.inference_mode()
    def begin(self, states: StateBlock, prompt: Prompt) -> tuple[GreedyRun, Progress]:
        if prompt.beam is not None:
            raise InvalidFieldError("generate.beam_size", prompt.beam.size, "1 with this model")
        cache = self._decoder.open_cache(state_tensor(states))
        return begin_greedy(self._decoder.prefill, cache, prompt)

    @torch.inference_mode()
    def step(self, runs: Sequence[GreedyRun]) -> list[Progress]:
        logits, rows, lengths = [], [], [run.cache.length for run in runs]
        try:
            for run in runs:
                prompt = run.prompt
                row, attention = self._decoder.prefill(
                    run.last_tokens, run.cache, prompt.attention_layer, prompt.attention_heads
                )
                logits.append(row)
                rows.append(attention[0])
        except Exception:
            # A run whose step raised can be stepped again: none of them has read its token.
            for run, length in zip(runs, lengths, strict=True):
                run.cache.truncate(min(length, run.cache.length))
            raise
        return take_greedy(runs, torch.cat(logits), rows)


_DTYPES: dict[int, torch.dtype] = {
    types_pb2.ELEMENT_TYPE_FLOAT32: torch.float32,
    types_pb2.ELEMENT_TYPE_BFLOAT16: torch.bfloat16,
    types_pb2.ELEMENT_TYPE_FLOAT16: torch.float16,
}


def state_tensor(states: StateBlock) -> torch.Tensor:
    """[S, d] float32 on the CPU."""
    # A bytearray, because torch warns of buffers that it could not write to.
    message = states.message
    flat = torch.frombuffer(bytearray(message.data), dtype=_DTYPES[message.element_type])
    matrix = flat.view(message.state_count, message.dimension).float()
    if not bool(torch.isfinite(matrix).all()):
        raise InvalidFieldError("states.data", "NaN or infinity", "finite numbers")
    return matrix
