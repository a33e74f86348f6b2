"""Absolute sinusoid positions, as the papers' decoder and plain Transformer encoder add them."""

import math

import torch

FIRST_POSITIONS = 256
"""Position rows that are computed at first; their number doubles when exceeded."""


def token_positions(count: int, width: int) -> torch.Tensor:
    """[count, width] float32 sinusoids of tokens 0, 1 …: first half sine, second half cosine.

    Token t has position t + 2 and column i the rate 10000^(-i / (width/2 - 1)).
    """
    half = width // 2
    rates = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000.0) / (half - 1)))
    angles = torch.arange(2, 2 + count, dtype=torch.float32)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)


class TokenPositions:
    """Position rows that are computed once and cut to length."""

    def __init__(self, width: int) -> None:
        """Start empty; `width` is the model's, d."""
        self._width = width
        self._rows = torch.empty(0, width)

    def up_to(self, count: int, device: torch.device) -> torch.Tensor:
        """[count, d] float32: the rows of tokens 0 … count - 1."""
        if count > self._rows.shape[0] or self._rows.device != device:
            enough = max(FIRST_POSITIONS, 2 ** math.ceil(math.log2(count)))
            self._rows = token_positions(enough, self._width).to(device)
        return self._rows[:count]
