"""Greedy search with draft verification (speculative decoding with an exact verifier)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from earvoice.decoder.state_block import ElementType, StateBlock
from earvoice.decoder.strategies.base import Choice, Opening, Strategy
from earvoice.models.decoding import CachedDecoder, DecoderCache
from earvoice.models.vocabulary import EOS, PAD
from earvoice.runtime.errors import InvalidFieldError

NEAR_TIE_LOGITS = 1e-4
"""Two best logits closer than this may change places between two exact ways of computing."""

_FIRST_CHOOSABLE = PAD + 1
_DTYPES = {
    ElementType.FLOAT32: torch.float32,
    ElementType.BFLOAT16: torch.bfloat16,
    ElementType.FLOAT16: torch.float16,
}


@dataclass(slots=True)
class GreedyRun:
    """One hypothesis: keys and values so far, and the token to read next."""

    cache: DecoderCache
    last_token: int
    attention_layer: int
    forbid_end: bool


@dataclass(frozen=True, slots=True)
class _Best:
    token: int
    log_probability: float
    near_tie: bool


class GreedyStrategy(Strategy[GreedyRun]):
    """Takes the most probable token, always.

    Args:
        decoder: the network, in evaluation mode.
        device: where its weights are.
    """

    def __init__(self, decoder: CachedDecoder, device: torch.device) -> None:
        self._decoder = decoder
        self._device = device

    @torch.inference_mode()
    def begin(self, states: StateBlock, opening: Opening) -> tuple[GreedyRun, list[Choice]]:
        """Verify the draft in one parallel pass over what is forced and the draft.

        Position ``len(forced) - 1 + j`` predicts draft token ``j``; the draft stands up to the
        first token that is not the most probable one there.
        """
        cache = self._decoder.open_cache(self._tensor_of(states))
        forced, draft = list(opening.forced), opening.draft
        logits, attention = self._decoder.prefill([*forced, *draft], cache, opening.attention_layer)
        first = len(forced) - 1
        best = _best_of(logits[first:], [opening.forbid_end] * (len(draft) + 1))
        accepted = _agreeing([item.token for item in best], draft)
        ended = accepted > 0 and draft[accepted - 1] == EOS
        count = accepted if ended else accepted + 1
        rows = attention[first : first + count].tolist()
        choices = [
            Choice(item.token, item.log_probability, row, item.near_tie, index < accepted)
            for index, (item, row) in enumerate(zip(best, rows, strict=False))
        ]
        cache.truncate(len(forced) + accepted)
        run = GreedyRun(cache, choices[-1].token, opening.attention_layer, opening.forbid_end)
        return run, choices

    @torch.inference_mode()
    def step(self, runs: Sequence[GreedyRun]) -> list[Choice]:
        """Read each run's last token and take the most probable next one."""
        logits, rows = self._decoder.step(
            [run.last_token for run in runs],
            [run.cache for run in runs],
            [run.attention_layer for run in runs],
        )
        best = _best_of(logits, [run.forbid_end for run in runs])
        weights = _split(rows)
        for run, item in zip(runs, best, strict=True):
            run.last_token = item.token
        return [
            Choice(item.token, item.log_probability, row, item.near_tie)
            for item, row in zip(best, weights, strict=True)
        ]

    def _tensor_of(self, states: StateBlock) -> torch.Tensor:
        """[S, d] float32 on the device."""
        # A bytearray, because torch warns of buffers that it could not write to.
        flat = torch.frombuffer(bytearray(states.data), dtype=_DTYPES[states.element_type])
        matrix = flat.view(states.state_count, states.dimension).float()
        if not bool(torch.isfinite(matrix).all()):
            raise InvalidFieldError("states.data", "NaN or infinity", "finite numbers")
        return matrix.to(self._device)


def _best_of(logits: torch.Tensor, forbid_end: Sequence[bool]) -> list[_Best]:
    """The most probable token allowed in each row of logits [n, V] float32 (overwritten)."""
    normalizer = logits.logsumexp(-1, keepdim=True)
    logits[:, :_FIRST_CHOOSABLE] = -torch.inf
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
