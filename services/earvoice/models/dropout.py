"""Dropout that costs little on a CPU: one random byte decides about one element."""

import torch
from torch import nn

BYTE_VALUES = 256


class Dropout(nn.Module):
    """Zero a share of the elements while training; the share is rounded to a 256th.

    `torch.nn.Dropout` draws a full random number for each element, a quarter of a training step on
    a CPU; eight bytes of one 64-bit draw do as well.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.threshold = round(probability * BYTE_VALUES)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Any shape → the same shape; kept elements are scaled so that the mean stays."""
        if not self.training or self.threshold == 0:
            return values
        draws = torch.empty((values.numel() + 7) // 8, dtype=torch.int64, device=values.device)
        random_bytes = draws.random_(-(2**63), None).view(torch.uint8)[: values.numel()]
        kept = (random_bytes >= self.threshold).view(values.shape)
        return values * kept * (BYTE_VALUES / (BYTE_VALUES - self.threshold))
