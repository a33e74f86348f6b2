"""Self-attention with relative positions (Dai 2019, Transformer-XL), in two dialects."""

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.config import EncoderConfig, PositionScheme
from earvoice.models.dropout import Dropout
from earvoice.models.inference import InferenceLinear

KEPT_BLOCK_FRAMES = 256
"""Kept positions are computed for so many frames at first; the number doubles when exceeded."""


def sinusoid(positions: torch.Tensor, width: int) -> torch.Tensor:
    """[n] positions → [n, width] float32: even columns sine, odd columns cosine.

    The angular rate of column pair i is 10000^(-2i / width).
    """
    rates = torch.exp(
        torch.arange(0, width, 2, dtype=torch.float32, device=positions.device)
        * -(math.log(10000.0) / width)
    )
    angles = positions.to(torch.float32)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def position_rows(positions: PositionScheme, frames: int, width: int) -> torch.Tensor:
    """The sinusoid rows that an utterance of `frames` frames needs, [n, width] float32.

    "released" takes rows 0 … T-1; "relative" takes the 2T-1 distances T-1 … -(T-1).
    """
    if positions == "released":
        return sinusoid(torch.arange(frames), width)
    return sinusoid(torch.arange(frames - 1, -frames, -1), width)


def shift_relative(scores: torch.Tensor) -> torch.Tensor:
    """[…, T, 2T-1] by distance T-1 … -(T-1) → [..., T, T] by key: column j gets distance i-j."""
    frames = scores.shape[-2]
    padded = functional.pad(scores, (1, 0))
    flat = padded.flatten(-2)[..., frames:]
    return flat.view(*scores.shape[:-1], 2 * frames - 1)[..., :frames]


def shift_released(scores: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
    """The shift of the papers' code, [B, H, T, T] by sinusoid row → [B, H, T, T] by key.

    Key j of query i gets row T-1-(i-j) for j ≤ i, zero for j = i+1, and for later keys row
    j-i-2 of the *next* query; T is each utterance's own length, so padding changes nothing.
    """
    frames = scores.shape[-1]
    if lengths is None:
        flat = functional.pad(scores, (1, 0)).flatten(-2)[..., frames:]
        return flat.view(scores.shape)
    index = torch.arange(frames, device=scores.device)
    own = lengths[:, None, None]
    flat_index = (index[:, None] + 1) * own + index
    row = (flat_index // (own + 1)).clamp(max=frames - 1)
    column = (flat_index % (own + 1)).clamp(max=frames)
    padded = functional.pad(scores, (1, 0)).flatten(-2)
    source = (row * (frames + 1) + column).flatten(1)[:, None].expand(-1, scores.shape[1], -1)
    return padded.gather(-1, source).view(scores.shape)


class KeptPositions:
    """Projected sinusoid rows of one layer, computed once and cut to each utterance's length."""

    def __init__(self, positions: PositionScheme, weight: torch.Tensor, heads: int) -> None:
        """Start empty.

        Args:
            positions: which rows an utterance needs.
            weight: [d, d] float32 of the position projection.
            heads: number of attention heads.
        """
        self._positions = positions
        self._weight = weight
        self._heads = heads
        self._frames = 0
        self._rows = weight.new_empty(0)

    def take(self, frames: int) -> torch.Tensor:
        """The rows for an utterance of `frames` frames, [1, heads, n, d_head] float32."""
        if frames > self._frames:
            self._grow(max(KEPT_BLOCK_FRAMES, 2 ** math.ceil(math.log2(frames))))
        if self._positions == "released":
            return self._rows[:, :, :frames]
        return self._rows[:, :, self._frames - frames : self._frames + frames - 1]

    def _grow(self, frames: int) -> None:
        """Project the rows for `frames` frames, a multiple of the block.

        Blocks begin at the same distances whatever the size, so that a row's last bits do not
        depend on the utterances seen before.
        """
        width = self._weight.shape[0]
        if self._positions == "released":
            rows = position_rows("released", frames, width)
        else:
            # One distance more than `position_rows` has, so that all blocks are full.
            rows = sinusoid(torch.arange(frames - 1, -frames - 1, -1), width)
        projected = torch.cat(
            [
                functional.linear(block.to(self._weight.device), self._weight)
                for block in torch.split(rows, KEPT_BLOCK_FRAMES)
            ]
        )
        self._frames = frames
        self._rows = projected.view(len(rows), self._heads, -1).transpose(0, 1)[None]


class _PreparedProjections(NamedTuple):
    fused: InferenceLinear
    positions: KeptPositions


class RelativeAttention(nn.Module):
    """Multi-head self-attention whose scores also look at the distance between frames.

    "released" computes [(q_i + u)·k_j + P(i, j)] / √d_model with the papers' shift, which depends
    on the utterance's length; "relative" computes [(q_i + u)·k_j + (q_i + v)·r(i - j)] / √d_head.
    """

    def __init__(self, config: EncoderConfig, dropout: float = 0.0) -> None:
        super().__init__()
        width = config.d_model
        self.heads = config.heads
        self.positions = config.positions
        self.released = config.positions == "released"
        self.dropout = Dropout(dropout)
        self.scale = (width if self.released else width // config.heads) ** -0.5
        self.query_proj = nn.Linear(width, width)
        self.key_proj = nn.Linear(width, width)
        self.value_proj = nn.Linear(width, width)
        self.pos_proj = nn.Linear(width, width, bias=False)
        self.out_proj = nn.Linear(width, width)
        self.u_bias = nn.Parameter(torch.empty(config.heads, width // config.heads))
        self.v_bias = nn.Parameter(torch.empty(config.heads, width // config.heads))
        nn.init.xavier_uniform_(self.u_bias)
        nn.init.xavier_uniform_(self.v_bias)
        self._prepared: _PreparedProjections | None = None

    def forward(
        self,
        hidden: torch.Tensor,
        rows: torch.Tensor | None,
        lengths: torch.Tensor | None,
        blocked: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attend.

        Args:
            hidden: [B, T, d] layer-normalised states.
            rows: [n, d] float32 from `position_rows`; None after `prepare`, which keeps its own.
            lengths: [B] int64, or None when nothing is padded.
            blocked: [B, 1, 1, T] bool, true at padded keys, or None.

        Returns:
            [B, T, d].
        """
        query, key, value, position = self._projected(hidden, rows)
        content = (query + self.u_bias[:, None]) @ key.transpose(-1, -2)
        by_row = (query + self.v_bias[:, None]) @ position.transpose(-1, -2)
        shifted = shift_released(by_row, lengths) if self.released else shift_relative(by_row)
        scores = ((content + shifted) * self.scale).float()
        if blocked is not None:
            scores = scores.masked_fill(blocked, -1e4)
        weights = self.dropout(scores.softmax(-1))
        attended = (weights.to(value.dtype) @ value).transpose(1, 2).flatten(2)
        output: torch.Tensor = self.out_proj(attended)
        return output

    def prepare(self, dtype: torch.dtype) -> None:
        """For inference only: one product for query, key and value; keep projected positions."""
        parts = (self.query_proj, self.key_proj, self.value_proj)
        weight = torch.cat([part.weight for part in parts])
        bias = torch.cat([part.bias for part in parts])
        fused = InferenceLinear(weight, bias, dtype)
        self._prepared = _PreparedProjections(
            fused, KeptPositions(self.positions, self.pos_proj.weight.detach(), self.heads)
        )
        del self.query_proj, self.key_proj, self.value_proj, self.pos_proj

    def _projected(
        self, hidden: torch.Tensor, rows: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value [B, heads, T, d_head], positions [1, heads, n, d_head]."""
        if self._prepared is not None:
            query, key, value = self._prepared.fused(hidden).chunk(3, dim=-1)
            position = self._prepared.positions.take(hidden.shape[1])
            return self._by_head(query), self._by_head(key), self._by_head(value), position
        return (
            self._by_head(self.query_proj(hidden)),
            self._by_head(self.key_proj(hidden)),
            self._by_head(self.value_proj(hidden)),
            self._by_head(self.pos_proj(rows)[None]),
        )

    def _by_head(self, projected: torch.Tensor) -> torch.Tensor:
        return projected.view(*projected.shape[:-1], self.heads, -1).transpose(1, 2)
