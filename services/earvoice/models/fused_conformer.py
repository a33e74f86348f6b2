"""The Conformer layer for inference: the numbers of `conformer`, in fewer passes over memory.

Queries, keys and values come from one product, the scale is in the weights, projected positions are
kept, and scores by position are read by key as a view instead of being shifted.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.config import PositionScheme
from earvoice.models.conformer import (
    ConformerLayer,
    ConvolutionModule,
    FeedForward,
    RelativeAttention,
    position_rows,
    shift_released,
    sinusoid,
    valid_frames,
)
from earvoice.models.inference import DepthwiseConvolution, InferenceLinear

KEPT_BLOCK_FRAMES = 256
"""Kept positions are computed for so many frames at first; the number doubles when exceeded."""
BLOCKED_SCORE = -1e4
"""Score of a padded key."""


class KeptPositions:
    """Projected sinusoid rows of one layer, computed once and cut to each utterance's length."""

    def __init__(self, positions: PositionScheme, weight: torch.Tensor, heads: int) -> None:
        self._positions = positions
        self._weight = weight
        self._heads = heads
        self._frames = 0
        self._rows = weight.new_empty(0)

    def take(self, frames: int) -> torch.Tensor:
        """The rows for an utterance of `frames` frames, [heads, d_head, n] float32."""
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
        self._rows = projected.view(len(rows), self._heads, -1).permute(1, 2, 0).contiguous()


class FusedAttention(nn.Module):
    """A `RelativeAttention` with its LayerNorm and residual sum."""

    def __init__(
        self, attention: RelativeAttention, norm: nn.LayerNorm, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.norm = norm
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
        self.positions = KeptPositions(
            attention.positions, attention.pos_proj.weight.detach(), attention.heads
        )

    def forward(
        self,
        hidden: torch.Tensor,
        frames: int,
        lengths: torch.Tensor | None,
        blocked: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attend and add.

        Args:
            hidden: [B, R, d] residual stream; rows from `frames` on mean nothing.
            frames: T ≤ R, what is attended to; R = T for a batch.
            lengths: [B] int64, or None when nothing is padded.
            blocked: [B, 1, 1, T] bool, true at padded keys, or None.

        Returns:
            [B, R, d] float32.
        """
        projected: torch.Tensor = self.projection(self.norm(hidden))
        shape = (*hidden.shape[:2], 3, self.heads, -1)
        query, key, value = projected.view(shape).unbind(2)
        by_position = self._by_position(query + self.position_bias, frames, lengths)
        if blocked is not None:
            by_position = by_position.masked_fill(blocked, BLOCKED_SCORE)
        attended = functional.scaled_dot_product_attention(
            (query + self.content_bias).transpose(1, 2),
            key[:, :frames].transpose(1, 2),
            value[:, :frames].transpose(1, 2),
            attn_mask=by_position,
            scale=1.0,
        )
        return self.output.added_to(hidden, attended.transpose(1, 2).flatten(2))

    def _by_position(
        self, query: torch.Tensor, frames: int, lengths: torch.Tensor | None
    ) -> torch.Tensor:
        """[B, R, heads, d_head] → [B, heads, R, T] scores of positions, by key."""
        batch, rows, heads, _ = query.shape
        positions = self.positions.take(frames).expand(batch, -1, -1, -1).flatten(0, 1)
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
        if lengths is not None:
            by_row = padded[:, :, 1:].reshape(batch, heads, rows, frames)
            return shift_released(by_row, lengths)
        size = rows * (frames + 1)
        return padded.as_strided(
            (batch, heads, rows, frames), (heads * size, size, frames, 1), frames
        )


class FusedFeedForward(nn.Module):
    """A `FeedForward` and the sum of half of it with the residual stream."""

    def __init__(self, plain: FeedForward, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = plain.layernorm
        self.first = InferenceLinear.from_linear(plain.first_linear, dtype, "swish")
        second = plain.second_linear
        # Halving is exact in floating point.
        self.second = InferenceLinear(0.5 * second.weight, 0.5 * second.bias, dtype)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, R, d] → [B, R, d] float32."""
        return self.second.added_to(hidden, self.first.product(self.norm(hidden)))


class FusedConvolution(nn.Module):
    """A `ConvolutionModule` and its sum with the residual stream."""

    def __init__(self, plain: ConvolutionModule, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = plain.layernorm
        self.gated = InferenceLinear.from_linear(plain.first_pointwise_conv1d, dtype)
        self.depthwise = DepthwiseConvolution(plain.depthwise_conv1d, plain.batchnorm)
        self.pointwise = InferenceLinear.from_linear(plain.second_pointwise_conv1d, dtype)

    def forward(
        self, hidden: torch.Tensor, frames: int, valid: torch.Tensor | None
    ) -> torch.Tensor:
        """[B, R, d] → [B, R, d] float32; what is not a valid frame is silence to its neighbours."""
        gated = functional.glu(self.gated(self.norm(hidden)), dim=-1)
        gated[:, frames:] = 0
        if valid is not None:
            gated = gated * valid[..., None]
        return self.pointwise.added_to(hidden, self.depthwise(gated))


class FusedConformerLayer(nn.Module):
    def __init__(self, plain: ConformerLayer, dtype: torch.dtype) -> None:
        super().__init__()
        self.first_feed_forward = FusedFeedForward(plain.first_feed_forward, dtype)
        self.attention = FusedAttention(plain.attention, plain.attention_norm, dtype)
        self.convolution = FusedConvolution(plain.conv_module, dtype)
        self.second_feed_forward = FusedFeedForward(plain.second_feed_forward, dtype)
        self.norm = plain.layernorm

    def forward(
        self, hidden: torch.Tensor, frames: int, lengths: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the layer.

        Args:
            hidden: [B, R, d] float32; rows from `frames` on mean nothing.
            frames: T ≤ R; R = T for a batch.
            lengths: [B] int64, or None when nothing is padded.

        Returns:
            [B, R, d] float32. Padded frames of a batch are not zeroed; nothing looks at them.
        """
        valid = None if lengths is None else valid_frames(lengths, frames)
        blocked = None if valid is None else ~valid[:, None, None, :]
        hidden = self.first_feed_forward(hidden)
        hidden = self.attention(hidden, frames, lengths, blocked)
        hidden = self.convolution(hidden, frames, valid)
        output: torch.Tensor = self.norm(self.second_feed_forward(hidden))
        return output
