"""Wait-k as the services write it: the source grows, the policy says how much to commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from earvoice.models.vocabulary import EOS
from earvoice.policies import WaitK
from earvoice.policies.base import Heard, Hypothesis, Token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earvoice.models.decoding import CachedDecoder
    from earvoice.models.vocabulary import Vocabulary

MOST_PIECES = 40


@dataclass(frozen=True)
class Step:
    """What is known of the source by then."""

    heard: Heard
    states: torch.Tensor
    """[S, d]"""


@torch.inference_mode()
def write(
    decoder: CachedDecoder, target: Vocabulary, steps: Sequence[Step], k: int | None
) -> list[tuple[Token, int]]:
    """Each piece, and the index of its step; the last is all of the source, which k None is for."""
    policy = WaitK(k or 1, "adaptive", inclusive=True)
    written: list[tuple[Token, int]] = []
    last = len(steps) - 1
    for index in range(0 if k else last, len(steps)):
        step = steps[index]
        if index < last and not policy.wants_hypothesis(step.heard):
            continue
        kept = [token.token_id for token, _ in written]
        new = _continued(decoder, target, step.states, kept, policy if index < last else None)
        if index < last:
            new = new[: policy.decide(step.heard, Hypothesis(kept, new)).new_token_count]
        written += [(token, index) for token in new]
    return written


def _continued(
    decoder: CachedDecoder,
    target: Vocabulary,
    states: torch.Tensor,
    kept: Sequence[int],
    policy: WaitK | None,
) -> list[Token]:
    """The most probable text after what is kept, as far as the policy looks."""
    cache, given, new = decoder.open_cache(states), [EOS, *kept], list[Token]()
    while len(kept) + len(new) < MOST_PIECES:
        logits, _ = decoder.prefill(given, cache, 1, first_logits=len(given) - 1)
        logits[:, :EOS] = -torch.inf
        piece = int(logits[0].argmax())
        if piece == EOS:
            break
        new.append(Token(piece, b"", target.starts_word(piece), ()))
        if policy is not None and policy.is_decided(new[-1], len(new) - 1):
            break
        given = [piece]
    return new
