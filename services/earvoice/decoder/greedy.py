"""Greedy search with draft verification (speculative decoding with an exact verifier)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from earvoice.decoder.strategy import PredictedToken, Progress, Prompt
from earvoice.models.decoding import DecoderCache, likeliest
from earvoice.models.lexicon import AT_THE_START, Mixture, Pending, SourceWords, mixtures_along
from earvoice.models.vocabulary import EOS, PAD
from earvoice.runtime.errors import InvalidFieldError

NEAR_TIE_LOGITS = 1e-4
"""Two exact computations may swap the two best logits where they are closer than this."""

_FIRST_CHOOSABLE = PAD + 1


Prefill = Callable[..., tuple[torch.Tensor, torch.Tensor]]
"""Reads many tokens at once: `CachedDecoder.prefill`, or another decoder's equivalent."""


@dataclass(slots=True)
class GreedyRun:
    """One hypothesis: keys and values so far, and the token to read next.

    Attributes:
        pending: where this token leaves the hypothesis in the lexicon.
    """

    prompt: Prompt
    cache: Any
    last_tokens: list[int]
    pending: Pending = field(default=AT_THE_START, kw_only=True)


def begin_greedy(prefill: Prefill, cache: Any, prompt: Prompt) -> tuple[GreedyRun, Progress]:
    """Verify the draft in one parallel pass over the forced tokens and the draft.

    Position ``len(forced) - 1 + j`` predicts draft token ``j``; the draft is accepted up to its
    first token that is not the most probable one at its position.
    """
    forced, draft = list(prompt.forced), prompt.draft
    last, told = len(forced) - 1, prompt.reported_prefix_tokens
    words, begun, pending = source_words(cache), len(forced), AT_THE_START
    if words is not None:
        # The lexicon may know how the last word of the prefix goes on, or that it is complete.
        begun, pending = words.last_word(forced)
    logits, attention = prefill(
        [*forced, *draft],
        cache,
        prompt.attention_layer,
        prompt.attention_heads,
        first_logits=begun - 1,
        first_attention=last - told,
    )
    mixtures: list[Mixture] = []
    if words is not None:
        following = [*forced[begun:], *draft]
        mixtures = mixtures_along(words, logits, cache.alignment, following, pending)
        del mixtures[: len(forced) - begun]
        logits = torch.stack([mixture.scores for mixture in mixtures])
    forbidden = [prompt.forbid_end] * (len(draft) + 1)
    forbidden[0] |= is_too_unlikely_to_end(logits[0], prompt)
    best = _best_of(logits, forbidden)
    if not math.isfinite(best[0][1]):
        raise overflowed()
    accepted = _agreeing([token for token, _, _ in best], draft)
    ended = accepted > 0 and draft[accepted - 1] == EOS
    count = accepted if ended else accepted + 1
    rows = attention[: told + count].tolist()
    tokens = [
        PredictedToken(token, log_probability, row, near_tie, index < accepted)
        for index, ((token, log_probability, near_tie), row) in enumerate(
            zip(best, rows[told:], strict=False)
        )
    ]
    cache.truncate(len(forced) + accepted)
    chosen = tokens[-1].token
    run = GreedyRun(prompt, cache, [chosen])
    if mixtures:
        run.pending = mixtures[count - 1].after(chosen)
    return run, Progress(tokens, prefix_attention=rows[:told])


def source_words(cache: Any) -> SourceWords | None:
    """Words of the text that is translated, where a lexicon has some of them."""
    if not isinstance(cache, DecoderCache) or cache.pivot is None:
        return None
    return cache.pivot.words


def is_too_unlikely_to_end(first: torch.Tensor, prompt: Prompt) -> bool:
    """Whether the end of sentence is too unlikely to come first, given the logits there, [V]."""
    if not prompt.least_end_probability:
        return False
    return math.exp(float(first[EOS] - first.logsumexp(-1))) < prompt.least_end_probability


def overflowed() -> InvalidFieldError:
    """Return the error for a network whose numbers have become infinite."""
    return InvalidFieldError("states.data", "numbers too large", "an encoder's states")


def take_greedy(
    runs: Sequence[GreedyRun], logits: torch.Tensor, rows: Sequence[torch.Tensor]
) -> list[Progress]:
    mixtures: dict[int, Mixture] = {}
    for index, run in enumerate(runs):
        if (words := source_words(run.cache)) is not None:
            mixture = words.mixed(logits[index], run.cache.alignment[0], run.pending)
            logits[index], mixtures[index] = mixture.scores, mixture
    best = _best_of(logits, [run.prompt.forbid_end for run in runs])
    for index, (run, (token, _, _)) in enumerate(zip(runs, best, strict=True)):
        run.last_tokens = [token]
        if index in mixtures:
            run.pending = mixtures[index].after(token)
    return [
        Progress([PredictedToken(token, log_probability, row, near_tie)])
        for (token, log_probability, near_tie), row in zip(best, _split(rows), strict=True)
    ]


def forbid(scores: torch.Tensor, *, end: bool) -> None:
    """Set the [n, V] scores of start, padding and, with `end`, end to -inf, in place."""
    scores[:, :_FIRST_CHOOSABLE] = -torch.inf
    if end:
        scores[:, EOS] = -torch.inf


def _best_of(logits: torch.Tensor, forbid_end: Sequence[bool]) -> list[tuple[int, float, bool]]:
    """Token, log-probability and near tie of the most probable token allowed in each row."""
    # Before any is forbidden: exponentials of -inf take several times as long.
    scores = logits.log_softmax(-1)
    forbid(scores, end=False)
    for row, forbidden in enumerate(forbid_end):
        if forbidden:
            scores[row, EOS] = -torch.inf
    values, indices = likeliest(scores, 2)
    # One transfer from the device: ids are below 2**24, so a float32 holds them exactly.
    facts = torch.cat((values, indices[:, :1].float()), dim=1).tolist()
    return [(int(token), first, first - second < NEAR_TIE_LOGITS) for first, second, token in facts]


def _agreeing(predicted: Sequence[int], draft: Sequence[int]) -> int:
    """Length of the draft's longest predicted prefix, at most up to its first end of sentence."""
    for index, token in enumerate(draft):
        if predicted[index] != token:
            return index
        if token == EOS:
            return index + 1
    return len(draft)


def _split(rows: Sequence[torch.Tensor]) -> list[list[float]]:
    """Rows of different lengths as lists, with one transfer from the device."""
    flat = torch.cat(list(rows)).tolist()
    weights, start = [], 0
    for row in rows:
        weights.append(flat[start : start + row.shape[0]])
        start += row.shape[0]
    return weights
