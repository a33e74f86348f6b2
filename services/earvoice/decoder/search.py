"""Greedy and beam search for many sessions, with our own decoder or another family's."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import torch

from earvoice.api.v1 import types_pb2
from earvoice.decoder.beam import BeamRun, begin_beam
from earvoice.decoder.greedy import GreedyRun, begin_greedy, take_greedy
from earvoice.decoder.strategy import (
    NEVER,
    PredictedToken,
    Preparation,
    Progress,
    Prompt,
    StateBlock,
    Strategy,
    least_end_probability,
)
from earvoice.models.decoding import CachedDecoder, DecoderCache, Pivot
from earvoice.models.lstm import LstmDecoder
from earvoice.models.vocabulary import EOS
from earvoice.runtime.errors import InvalidFieldError

if TYPE_CHECKING:
    # It needs `transformers`, which not every service has.
    from earvoice.models.wrapped.decoder import WrappedDecoder

Run = GreedyRun | BeamRun

PIVOT_TOKENS_PER_STATE = 0.5
"""A source text to be translated is cut there: nobody says twelve pieces a second."""
LEAST_PIVOT_TOKENS = 16


@dataclass(slots=True)
class SourceRun(GreedyRun, Preparation):
    """A run that writes a text in the source language, for other languages to translate.

    Attributes:
        most: number of tokens at which the text is cut.
        known: what has been computed from the states; the finished text goes there, under `key`.
    """

    states: StateBlock
    most: int
    known: dict[Hashable, Any]
    key: Hashable
    written: list[PredictedToken] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.written[-1].token == EOS or len(self.written) >= self.most

    def take(self, tokens: Sequence[PredictedToken]) -> None:
        self.written += tokens
        self.states.source_text[:] = [choice.token for choice in self.written]
        if self.is_over:
            rows = torch.tensor([choice.attention for choice in self.written])
            self.known[self.key] = Pivot(
                [*self.states.source_text],
                [choice.log_probability for choice in self.written],
                rows.to(self.cache.cross_keys.device),
            )


class SearchStrategy(Strategy):
    """Searches as each prompt says; all rows of all runs go through the network in one batch."""

    def __init__(self, decoder: CachedDecoder | WrappedDecoder) -> None:
        self._decoder = decoder
        self.source_prompt = decoder.pivot_prompt
        self._memories: WeakKeyDictionary[StateBlock, dict[Hashable, Any]] = WeakKeyDictionary()

    @torch.inference_mode()
    def prepare(self, states: StateBlock, forced: Sequence[int]) -> SourceRun | None:
        """Begin the source text; that of the utterance's earlier states is its draft."""
        known, key = self._known(states, forced)
        if key in known or not self._decoder.is_translated(forced):
            return None
        config = cast("CachedDecoder", self._decoder).config  # other decoders have no pivot
        most = LEAST_PIVOT_TOKENS + int(PIVOT_TOKENS_PER_STATE * states.message.state_count)
        if config.decoder.max_new_tokens is not None:
            most = min(most, config.decoder.max_new_tokens)
        least = least_end_probability(config.decoder.least_empty_probability, states, ())
        reads = config.policy_defaults
        source = Prompt(
            self.source_prompt,
            tuple(states.source_text[: most - 1]),
            reads.attention_layer,
            forbid_end=False,
            attention_heads=reads.attention_heads,
            # A translation has begun, so something was said: the source text is not empty.
            least_end_probability=NEVER if self._is_begun(forced) else least,
        )
        cache = self.memory_of(states, source.forced).fresh()
        begun, progress = begin_greedy(self._decoder.prefill, cache, source)
        run = SourceRun(source, begun.cache, begun.last_tokens, states, most, known, key)
        run.take(progress.tokens)
        return run

    @torch.inference_mode()
    def begin(self, states: StateBlock, prompt: Prompt) -> tuple[Run, Progress]:
        cache, prefill = self.memory_of(states, prompt.forced).fresh(), self._decoder.prefill
        if self._decoder.is_translated(prompt.forced):
            # The source text has decided whether anything was said.
            prompt = replace(prompt, least_end_probability=0.0)
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
            for run, progress in zip(greedy_runs, taken, strict=True):
                if isinstance(run, SourceRun):
                    run.take(progress.tokens)
        return [found[index] for index in range(len(runs))]

    def memory_of(self, states: StateBlock, tokens: Sequence[int]) -> Any:
        """Keys and values of these states, computed once for all runs that attend to them.

        A source text to be translated is written first where it is not known yet.
        """
        known, key = self._known(states, tokens)
        if key not in known:
            source = self.prepare(states, tokens)
            while source is not None and not source.is_over:
                self.step([source])
        pivot = known.get(key)
        if pivot is None or isinstance(pivot, Pivot):
            known[key] = self._decoder.open_cache(state_tensor(states), tokens, pivot)
        return known[key]

    def _known(
        self, states: StateBlock, tokens: Sequence[int]
    ) -> tuple[dict[Hashable, Any], Hashable]:
        """What has been computed from states, and the key for hypotheses with these tokens."""
        key: list[Hashable] = [self._decoder.stack_of(tokens)]
        if self._decoder.is_translated(tokens):
            # What is read depends on the language, too, and may be empty only before a first token.
            key += [tuple(tokens[1:2]), self._is_begun(tokens)]
        return self._memories.setdefault(states, {}), tuple(key)

    def _is_begun(self, tokens: Sequence[int]) -> bool:
        """Whether these tokens begin a translation that already has a token of its own."""
        return self._decoder.is_translated(tokens) and len(tokens) > len(self.source_prompt)


def _source_of(cache: Any) -> list[PredictedToken]:
    if not isinstance(cache, DecoderCache) or cache.pivot is None:
        return []
    written = zip(cache.pivot.tokens, cache.pivot.log_probabilities, strict=True)
    return [PredictedToken(token, sure, []) for token, sure in written]


class SequentialStrategy(Strategy):
    """Greedy search, run by run, with a decoder that steps one hypothesis at a time."""

    def __init__(self, decoder: LstmDecoder) -> None:
        self._decoder = decoder

    @torch.inference_mode()
    def begin(self, states: StateBlock, prompt: Prompt) -> tuple[GreedyRun, Progress]:
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
            # Undo the step of all runs, so that each can be stepped again.
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
    # A bytearray, because torch warns about read-only buffers.
    message = states.message
    flat = torch.frombuffer(bytearray(message.data), dtype=_DTYPES[message.element_type])
    matrix = flat.view(message.state_count, message.dimension).float()
    if not bool(torch.isfinite(matrix).all()):
        raise InvalidFieldError("states.data", "NaN or infinity", "finite numbers")
    return matrix
