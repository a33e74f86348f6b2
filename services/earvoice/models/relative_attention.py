"""Self-attention with relative positions (Dai 2019, Transformer-XL), in two dialects."""

import math

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.config import EncoderConfig, PositionScheme
from earvoice.models.dropout import Dropout


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

    def forward(
        self,
        hidden: torch.Tensor,
        rows: torch.Tensor,
        lengths: torch.Tensor | None,
        blocked: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attend.

        Args:
            hidden: [B, T, d] layer-normalised states.
            rows: [n, d] float32 from `position_rows`.
            lengths: [B] int64, or None when nothing is padded.
            blocked: [B, 1, 1, T] bool, true at padded keys, or None.

        Returns:
            [B, T, d].
        """
        query, key, value = (
            self._by_head(projection(hidden))
            for projection in (self.query_proj, self.key_proj, self.value_proj)
        )
        position = self._by_head(self.pos_proj(rows)[None])
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

    def _by_head(self, projected: torch.Tensor) -> torch.Tensor:
        return projected.view(*projected.shape[:-1], self.heads, -1).transpose(1, 2)
