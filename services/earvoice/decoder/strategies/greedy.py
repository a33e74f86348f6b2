"""Greedy search with draft verification (speculative decoding with an exact verifier)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from earvoice.decoder.strategies.base import Choice, Opening, Progress
from earvoice.decoder.strategies.choosable import NEAR_TIE_LOGITS, forbid
from earvoice.models.vocabulary import EOS
from earvoice.runtime.errors import InvalidFieldError


class TokenCache(Protocol):
    """What a decoder keeps of the tokens it has read."""

    def truncate(self, length: int) -> None:
        """Forget all tokens after the first `length`."""


CacheT = TypeVar("CacheT", bound=TokenCache)
CacheT_contra = TypeVar("CacheT_contra", bound=TokenCache, contravariant=True)


class PrefillDecoder(Protocol[CacheT_contra]):
    """A decoder that reads many tokens at once; see `CachedDecoder.prefill`."""

    def prefill(
        self,
        tokens: list[int],
        cache: CacheT_contra,
        attention_layer: int,
        attention_heads: Sequence[int] = (),
        *,
        first_logits: int = 0,
        first_attention: int = 0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits from `first_logits` on and attention from `first_attention` on."""


@dataclass(slots=True)
class GreedyRun(Generic[CacheT]):
    """One hypothesis: keys and values so far, and the token to read next."""

    opening: Opening
    cache: CacheT
    last_tokens: list[int]


@dataclass(frozen=True, slots=True)
class _Best:
    token: int
    log_probability: float
    near_tie: bool


def begin_greedy(
    decoder: PrefillDecoder[CacheT], cache: CacheT, opening: Opening
) -> tuple[GreedyRun[CacheT], Progress]:
    """Verify the draft in one parallel pass over what is forced and the draft.

    Position ``len(forced) - 1 + j`` predicts draft token ``j``; the draft stands up to the first
    token that is not the most probable one there.

    Raises:
        InvalidFieldError: the first token's logits are no numbers: the states were too large.
    """
    forced, draft = list(opening.forced), opening.draft
    first = len(forced) - 1
    logits, attention = decoder.prefill(
        [*forced, *draft],
        cache,
        opening.attention_layer,
        opening.attention_heads,
        first_logits=first,
        first_attention=first - opening.reported_prefix_tokens,
    )
    best = _best_of(logits, [opening.forbid_end] * (len(draft) + 1))
    if not math.isfinite(best[0].log_probability):
        raise InvalidFieldError("states.data", "numbers too large", "an encoder's states")
    accepted = _agreeing([item.token for item in best], draft)
    ended = accepted > 0 and draft[accepted - 1] == EOS
    count = accepted if ended else accepted + 1
    told = opening.reported_prefix_tokens
    rows = attention[: told + count].tolist()
    choices = [
        Choice(item.token, item.log_probability, row, item.near_tie, index < accepted)
        for index, (item, row) in enumerate(zip(best, rows[told:], strict=False))
    ]
    cache.truncate(len(forced) + accepted)
    run = GreedyRun(opening, cache, [choices[-1].token])
    return run, Progress.of(choices, rows[:told])


def take_greedy(
    runs: Sequence[GreedyRun[Any]], logits: torch.Tensor, rows: Sequence[torch.Tensor]
) -> list[Progress]:
    """Take the most probable token of each run.

    Args:
        runs: n runs.
        logits: [n, V] float32 (overwritten).
        rows: n attention rows [S].
    """
    best = _best_of(logits, [run.opening.forbid_end for run in runs])
    weights = _split(rows)
    for run, item in zip(runs, best, strict=True):
        run.last_tokens = [item.token]
    return [
        Progress.of([Choice(item.token, item.log_probability, row, item.near_tie)])
        for item, row in zip(best, weights, strict=True)
    ]


def _best_of(logits: torch.Tensor, forbid_end: Sequence[bool]) -> list[_Best]:
    """The most probable token allowed in each row of logits [n, V] float32 (overwritten)."""
    normalizer = logits.logsumexp(-1, keepdim=True)
    forbid(logits, end=False)
    for row, forbidden in enumerate(forbid_end):
        if forbidden:
            logits[row, EOS] = -torch.inf
    top = logits.topk(2)
    # One transfer from the device: ids are below 2**24, so a float32 holds them exactly.
    facts = torch.cat((top.values, normalizer, top.indices[:, :1].float()), dim=1).tolist()
    return [
        _Best(int(token), first - whole, first - second < NEAR_TIE_LOGITS)
        for first, second, whole, token in facts
    ]


def _agreeing(predicted: Sequence[int], draft: Sequence[int]) -> int:
    """Length of the draft's longest part that was predicted, its first end of sentence the last."""
    for index, token in enumerate(draft):
        if predicted[index] != token:
            return index
        if token == EOS:
            return index + 1
    return len(draft)


def _split(rows: Sequence[torch.Tensor]) -> list[list[float]]:
    """Rows of different lengths as lists, by one transfer from the device."""
    flat = torch.cat(list(rows)).tolist()
    weights, start = [], 0
    for row in rows:
        weights.append(flat[start : start + row.shape[0]])
        start += row.shape[0]
    return weights
