"""Hypotheses that a replay does not know yet, found by the decoder service's own search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.nn.functional import scaled_dot_product_attention

from earvoice.decoder.search import Run, SearchStrategy
from earvoice.decoder.strategy import (
    BeamPlan,
    Hypothesis,
    PredictedToken,
    Progress,
    Prompt,
    StateBlock,
    TokenTable,
)
from earvoice.evaluation.replay.setting import AttentionView
from earvoice.models.decoding import CachedDecoder, decoding_layers
from earvoice.models.vocabulary import EOS
from earvoice.policies.base import Token

MOST_TASKS = 64
"""Searches that are stepped together: more gain nothing on a CPU."""


@dataclass(frozen=True)
class AttentionChoice:
    """Which cross-attention a policy is shown: a layer and heads, from 1; no heads means all."""

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
class HypothesisRequest:
    """What a session wants to know.

    Attributes:
        limit: most tokens after the prefix, end of sentence included.
        beam_size: 1 is greedy.
    """

    revision: int
    prefix: tuple[int, ...]
    limit: int
    forbid_end: bool
    beam_size: int = 1


@dataclass(frozen=True)
class Continuation:
    """A hypothesis behind its prefix: what greedy search put there, or the best of a beam.

    Attributes:
        tokens: what was chosen, the end of sentence included where it was reached.
        ended: whether the last of them is the end of sentence.
        weights: [layers, heads, len(tokens), S] float32, cross-attention of the steps that predict
            them.
        alternatives: of a beam, new tokens of every hypothesis, best first, without ends.
    """

    prefix: tuple[int, ...]
    tokens: tuple[int, ...]
    ended: bool
    log_probabilities: tuple[float, ...]
    weights: torch.Tensor
    alternatives: tuple[tuple[int, ...], ...] = ()
    step_count: int = 0
    _shown: dict[AttentionChoice, list[Token]] = field(default_factory=dict, repr=False)

    def shown(self, choice: AttentionChoice, table: TokenTable) -> list[Token]:
        if choice not in self._shown:
            rows = choice.rows(self.weights).tolist()
            self._shown[choice] = [
                Token(token, table.texts[token], table.starts_word[token], row, log_probability)
                for token, row, log_probability in zip(
                    self.tokens, rows, self.log_probabilities, strict=True
                )
            ]
        return self._shown[choice]


@dataclass(eq=False)
class SearchTask:
    """A hypothesis that is wanted; greedy search verifies the guess first."""

    request: HypothesisRequest
    block: StateBlock
    guess: Sequence[int] = ()
    found: Continuation | None = field(default=None, init=False)
    _choices: list[PredictedToken] = field(default_factory=list, init=False)
    _beam: list[Hypothesis] = field(default_factory=list, init=False)
    _step_count: int = field(default=-1, init=False)

    def prompt(self, forced: tuple[int, ...]) -> Prompt:
        wanted = self.request
        plan, guess = None, tuple(self.guess[: wanted.limit - 1])
        if wanted.beam_size > 1:
            plan, guess = BeamPlan(wanted.beam_size, wanted.limit, all_hypotheses=True), ()
        tokens = (*forced, *wanted.prefix)
        return Prompt(tokens, guess, 1, wanted.forbid_end, beam=plan)

    def is_over_with(self, progress: Progress) -> bool:
        """Take what a pass or a step found, and tell whether all is known."""
        self._step_count += 1
        self._choices += progress.tokens
        self._beam = progress.beam
        if self.request.beam_size > 1:
            return bool(self._beam)
        return self._choices[-1].token == EOS or len(self._choices) >= self.request.limit

    def finish(self, weights: torch.Tensor) -> None:
        """Keep the hypothesis, with the attention [layers, heads, n, S] of its tokens."""
        hypotheses = [tuple(choice.token for choice in item.tokens) for item in self._beam]
        tokens = tuple(choice.token for choice in self.best)
        self.found = Continuation(
            self.request.prefix,
            tokens,
            tokens[-1] == EOS,
            tuple(choice.log_probability for choice in self.best),
            weights,
            tuple(own[:-1] if own[-1] == EOS else own for own in hypotheses),
            self._step_count if self._beam else 0,
        )

    @property
    def best(self) -> list[PredictedToken]:
        return self._beam[0].tokens if self._beam else self._choices

    def result(self) -> Continuation:
        if self.found is None:
            raise RuntimeError("the search is not over")
        return self.found


class Searcher:
    def __init__(
        self, strategy: SearchStrategy, decoder: CachedDecoder, forced: Sequence[int]
    ) -> None:
        self._strategy = strategy
        self._decoder = decoder
        self._forced = tuple(forced)

    def run(self, tasks: Sequence[SearchTask]) -> None:
        for start in range(0, len(tasks), MOST_TASKS):
            self._run_batch(tasks[start : start + MOST_TASKS])

    def _run_batch(self, tasks: Sequence[SearchTask]) -> None:
        running: list[tuple[SearchTask, Run]] = []
        for task in tasks:
            run, progress = self._strategy.begin(task.block, task.prompt(self._forced))
            if not task.is_over_with(progress):
                running.append((task, run))
        while running:
            progresses = self._strategy.step([run for _, run in running])
            running = [
                item
                for item, progress in zip(running, progresses, strict=True)
                if not item[0].is_over_with(progress)
            ]
        for task in tasks:
            tokens = [choice.token for choice in task.best]
            forced = [*self._forced, *task.request.prefix]
            weights = self._attention(task.block, [*forced, *tokens[:-1]])
            task.finish(weights[:, :, len(forced) - 1 :].clone())

    @torch.inference_mode()
    def _attention(self, block: StateBlock, tokens: Sequence[int]) -> torch.Tensor:
        """Read tokens once more: cross-attention of all layers and heads, [layers, heads, n, S].

        The service's search tells that of one layer alone.
        """
        decoder = self._decoder
        cache = self._strategy.memory_of(block, tokens)
        ids, count = torch.tensor(tokens), len(tokens)
        hidden = decoder.embed(ids, decoder.positions_up_to(count))
        seen = torch.ones(count, count, dtype=torch.bool).tril()
        weights: list[torch.Tensor] = []
        for index, layer in enumerate(decoding_layers(cache.stack)):
            query, keys, values = layer.project_self(hidden)
            own = scaled_dot_product_attention(query, keys, values, attn_mask=seen)
            hidden = layer.add_self(hidden, own.transpose(0, 1).flatten(1))
            queries = layer.project_cross(hidden)
            keys = cache.cross_keys[index].transpose(-1, -2)
            weights.append(((queries * queries.shape[-1] ** -0.5) @ keys).float().softmax(-1))
            attended = weights[-1] @ cache.cross_values[index]
            hidden = layer.add_cross(hidden, attended.transpose(0, 1).flatten(1))
            hidden = layer.add_feed_forward(hidden)
        return torch.stack(weights)
