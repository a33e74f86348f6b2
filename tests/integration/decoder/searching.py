"""Beam searches through the strategy, and a slow one to compare them with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from earvoice.decoder.search import SearchStrategy
from earvoice.decoder.strategy import BeamPlan, Progress, Prompt, block_of
from earvoice.models.decoding import CachedDecoder

END = 2
NEVER = (0, 1)


def beam_opening(forced: Sequence[int], plan: BeamPlan, layer: int, **more: object) -> Prompt:
    """A beam search from these tokens, which may end."""
    fields = {"forbid_end": False} | more
    return Prompt(tuple(forced), (), layer, beam=plan, **fields)  # type: ignore[arg-type]


def search_together(
    strategy: SearchStrategy, searches: Sequence[tuple[np.ndarray, Prompt]]
) -> list[Progress]:
    """The end of each beam search, over its own states, all in one batch."""
    begun = [strategy.begin(block_of(states), opening) for states, opening in searches]
    found = [progress for _, progress in begun]
    while open_ones := [index for index, progress in enumerate(found) if not progress.beam]:
        stepped = strategy.step([begun[index][0] for index in open_ones])
        for index, progress in zip(open_ones, stepped, strict=True):
            near_tie = progress.near_tie or found[index].near_tie
            found[index] = Progress(
                progress.tokens, progress.beam, progress.prefix_attention, near_tie
            )
    return found


def search(strategy: SearchStrategy, states: np.ndarray, opening: Prompt) -> Progress:
    """The end of one beam search; its near tie tells of all its steps."""
    return search_together(strategy, [(states, opening)])[0]


@dataclass(frozen=True)
class Leaf:
    """A hypothesis after the forced tokens, and the sum of log-probabilities of all of it."""

    tokens: tuple[int, ...]
    total: float


@torch.inference_mode()
def log_probabilities(decoder: CachedDecoder, states: np.ndarray, tokens: list[int]) -> np.ndarray:
    """[n, V] by one teacher-forced pass of the training network."""
    memory = torch.from_numpy(states)[None]
    logits = decoder(torch.tensor([tokens]), memory, torch.tensor([len(states)]))[0]
    scores: np.ndarray = logits.double().log_softmax(-1).numpy()
    return scores


def slow_search(
    decoder: CachedDecoder, states: np.ndarray, forced: list[int], size: int, limit: int
) -> list[Leaf]:
    """All of the n-best list, every hypothesis read anew at every step; no caches, no batches."""
    scores = log_probabilities(decoder, states, forced)
    start = sum(scores[i, token] for i, token in enumerate(forced[1:]))
    live, finished = [Leaf((), float(start))], list[Leaf]()
    for length in range(limit):
        candidates = []
        for leaf in live:
            row = log_probabilities(decoder, states, [*forced, *leaf.tokens])[-1]
            for token in range(len(row)):
                empty = token == END and len(forced) + length == 1
                if token not in NEVER and not empty:
                    candidates.append(Leaf((*leaf.tokens, token), leaf.total + float(row[token])))
        best = sorted(candidates, key=lambda leaf: -leaf.total)[: 2 * size]
        finished += [leaf for leaf in best[:size] if leaf.tokens[-1] == END]
        live = [leaf for leaf in best if leaf.tokens[-1] != END][:size]
        if len(finished) >= size:
            return _ranked(finished[:size], forced)
    return _ranked([*finished, *live], forced)[:size]


def _ranked(leaves: list[Leaf], forced: list[int]) -> list[Leaf]:
    def score(leaf: Leaf) -> float:
        return leaf.total / (len(forced) - 1 + len(leaf.tokens))

    return sorted(leaves, key=score, reverse=True)
