"""Which tokens may be chosen, and when two of them are too near to tell apart."""

from __future__ import annotations

import torch

from earvoice.models.vocabulary import EOS, PAD

NEAR_TIE_LOGITS = 1e-4
"""Two best logits closer than this may change places between two exact ways of computing."""

_FIRST_CHOOSABLE = PAD + 1


def forbid(scores: torch.Tensor, *, end: bool) -> None:
    """Take from [n, V] logits or log-probabilities, in place, what is never chosen.

    Args:
        scores: start and padding become -inf in all rows.
        end: whether the end of sentence does, too.
    """
    scores[:, :_FIRST_CHOOSABLE] = -torch.inf
    if end:
        scores[:, EOS] = -torch.inf
