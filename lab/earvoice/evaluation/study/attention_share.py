"""How much of each decoder layer's attention lies on the newest encoder states (Papi 2023, §5)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from earvoice.evaluation.study.partial_hypothesis import PartialHypothesis

SHARES = ("last state", "last but one", "if all were alike")


def attention_shares(hypotheses: Sequence[PartialHypothesis]) -> torch.Tensor | None:
    """Return the mean over an input's beginnings, their tokens and the heads.

    Returns:
        [layers, 3], as in `SHARES`; None where no beginning has two states.
    """
    weights = [one.found.weights for one in hypotheses if one.found is not None]
    return mean_shares([one for one in weights if one.shape[-1] > 1])


def mean_shares(weights: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """[layers, heads, n, S ≥ 2] of each beginning → [layers, 3]; None of none."""
    if not weights:
        return None
    segments = []
    for segment in weights:
        rows = segment.mean(dim=(1, 2))
        even = torch.full_like(rows[:, -1], 1 / rows.shape[-1])
        segments.append(torch.stack([rows[:, -1], rows[:, -2], even], dim=-1))
    return torch.stack(segments).mean(0)
