"""The optimiser, its rate, and what a run says of itself."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

WARMUP_STEPS = 100


def optimiser(parameters: Iterable[nn.Parameter], peak: float) -> torch.optim.AdamW:
    return torch.optim.AdamW(parameters, lr=peak, betas=(0.9, 0.98), weight_decay=0.01, fused=True)


def rate(step: int, share: float) -> float:
    """The share of the peak rate at a step: a short warm-up, then a cosine to a twentieth.

    `share` is how much of the time is over.
    """
    cosine = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return min(1.0, (step + 1) / WARMUP_STEPS) * cosine


def report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
