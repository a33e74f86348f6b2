"""The Conformer's self-attention with relative positions: plain, and for inference."""

import math

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.config import EncoderConfig, PositionScheme
from earvoice.models.inference import InferenceLinear
from earvoice.models.transformer import Dropout

BLOCKED_SCORE = -1e4
"""Score of a padded key."""


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
    """Multi-head self-attention whose scores also depend on the distance between frames.

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
        valid: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attend.

        Args:
            rows: [n, d] float32 from `position_rows`.
            lengths: [B] int64, or None when nothing is padded.
            valid: [B, T] bool, the same as a mask.

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
        if valid is not None:
            scores = scores.masked_fill(~valid[:, None, None], BLOCKED_SCORE)
        weights = self.dropout(scores.softmax(-1))
        attended = (weights.to(value.dtype) @ value).transpose(1, 2).flatten(2)
        output: torch.Tensor = self.out_proj(attended)
        return output

    def _by_head(self, projected: torch.Tensor) -> torch.Tensor:
        return projected.view(*projected.shape[:-1], self.heads, -1).transpose(1, 2)


KEPT_BLOCK_FRAMES = 256
"""Kept positions are first computed for this many frames; the number doubles when exceeded."""


class FusedAttention(nn.Module):
    """A `RelativeAttention` for inference, in fewer passes over memory.

    Queries, keys and values come from one product, the scale is in the weights, projected positions
    are kept, and scores by position are read by key as a view instead of being shifted.
    """

    def __init__(self, attention: RelativeAttention, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = attention.heads
        self.released = attention.released
        parts = (attention.query_proj, attention.key_proj, attention.value_proj)
        scales = (attention.scale, 1.0, 1.0)
        self.projection = InferenceLinear(
            torch.cat([part.weight * scale for part, scale in zip(parts, scales, strict=True)]),
            torch.cat([part.bias * scale for part, scale in zip(parts, scales, strict=True)]),
            dtype,
        )
        self.output = InferenceLinear.from_linear(attention.out_proj, dtype)
        self.content_bias = nn.Buffer(
            (attention.u_bias * attention.scale).detach(), persistent=False
        )
        self.position_bias = nn.Buffer(
            (attention.v_bias * attention.scale).detach(), persistent=False
        )
        self._position_weight = attention.pos_proj.weight.detach()
        self._kept_frames = 0
        self._kept = self._position_weight.new_empty(0)

    def added_to(
        self,
        hidden: torch.Tensor,
        normed: torch.Tensor,
        valid: torch.Tensor | None,
        frames: int,
    ) -> torch.Tensor:
        """Attend and add.

        Args:
            hidden: [B, R, d] residual stream; rows from `frames` on mean nothing.
            normed: [B, R, d], the same after LayerNorm.
            valid: [B, R] bool, or None when nothing is padded.
            frames: T ≤ R, what is attended to; R = T for a batch.

        Returns:
            [B, R, d] float32.
        """
        projected: torch.Tensor = self.projection(normed)
        shape = (*normed.shape[:2], 3, self.heads, -1)
        query, key, value = projected.view(shape).unbind(2)
        by_position = self._by_position(query + self.position_bias, frames, valid)
        if valid is not None:
            by_position = by_position.masked_fill(~valid[:, None, None], BLOCKED_SCORE)
        attended = functional.scaled_dot_product_attention(
            (query + self.content_bias).transpose(1, 2),
            key[:, :frames].transpose(1, 2),
            value[:, :frames].transpose(1, 2),
            attn_mask=by_position,
            scale=1.0,
        )
        return self.output.added_to(hidden, attended.transpose(1, 2).flatten(2))

    def _by_position(
        self, query: torch.Tensor, frames: int, valid: torch.Tensor | None
    ) -> torch.Tensor:
        """[B, R, heads, d_head] → [B, heads, R, T] scores of positions, by key."""
        batch, rows, heads, _ = query.shape
        positions = self._kept_positions(frames).expand(batch, -1, -1, -1).flatten(0, 1)
        query = query.transpose(1, 2).flatten(0, 1)
        if not self.released:
            # Column c of row i is distance T-1-c: key j is column T-1-i+j.
            distances = 2 * frames - 1
            scores = torch.bmm(query, positions)
            size = rows * distances
            strides = (heads * size, size, distances - 1, 1)
            return scores.as_strided((batch, heads, rows, frames), strides, frames - 1)
        # One column of zeros before each row: what follows a row's last column belongs to the next.
        padded = query.new_empty(batch * heads, rows, frames + 1)
        padded[:, :, 0] = 0
        torch.bmm(query, positions, out=padded[:, :, 1:])
        if valid is not None:
            by_row = padded[:, :, 1:].reshape(batch, heads, rows, frames)
            return shift_released(by_row, valid.sum(1))
        size = rows * (frames + 1)
        return padded.as_strided(
            (batch, heads, rows, frames), (heads * size, size, frames, 1), frames
        )

    def _kept_positions(self, frames: int) -> torch.Tensor:
        """The projected rows for an utterance of `frames` frames, [heads, d_head, n] float32."""
        if frames > self._kept_frames:
            self._keep(max(KEPT_BLOCK_FRAMES, 2 ** math.ceil(math.log2(frames))))
        if self.released:
            return self._kept[:, :, :frames]
        return self._kept[:, :, self._kept_frames - frames : self._kept_frames + frames - 1]

    def _keep(self, frames: int) -> None:
        """Project the rows for `frames` frames, a multiple of the block.

        Blocks begin at the same distances whatever the size, so that a row's last bits do not
        depend on the utterances seen before.
        """
        weight = self._position_weight
        if self.released:
            rows = position_rows("released", frames, weight.shape[0])
        else:
            # One distance more than `position_rows` has, so that all blocks are full.
            rows = sinusoid(torch.arange(frames - 1, -frames - 1, -1), weight.shape[0])
        projected = torch.cat(
            [
                functional.linear(block.to(weight.device), weight)
                for block in torch.split(rows, KEPT_BLOCK_FRAMES)
            ]
        )
        self._kept_frames = frames
        self._kept = projected.view(len(rows), self.heads, -1).permute(1, 2, 0).contiguous()
