"""The papers' Conformer (Gulati 2020): strided convolutions, relative positions, layers."""

import math

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.config import EncoderConfig, PositionScheme
from earvoice.models.inference import StridedConvolution
from earvoice.models.transformer import Dropout


def subsampled_lengths(lengths: torch.Tensor, layers: int) -> torch.Tensor:
    """Frames left after `layers` convolutions of stride 2: each gives ⌈length / 2⌉."""
    for _ in range(layers):
        lengths = (lengths + 1) // 2
    return lengths


def valid_frames(lengths: torch.Tensor, frames: int) -> torch.Tensor:
    """[B, frames] bool, true where a frame of utterance b is sound and not padding."""
    return torch.arange(frames, device=lengths.device) < lengths[:, None]


class Subsampler(nn.Module):
    """Stride-2 convolutions with gated linear units; the output is scaled by √d_model."""

    def __init__(self, config: EncoderConfig, mel_bins: int) -> None:
        super().__init__()
        sub = config.subsampler
        inputs = [mel_bins, *[sub.channels // 2] * (sub.layers - 1)]
        outputs = [*[sub.channels] * (sub.layers - 1), 2 * config.d_model]
        half = sub.kernel_frames // 2
        self.padding = (2 * half, 0) if config.causal else (half, half)
        self.conv_layers = nn.ModuleList(
            nn.Conv1d(i, o, sub.kernel_frames, stride=2)
            for i, o in zip(inputs, outputs, strict=True)
        )
        self._inference: nn.ModuleList | None = None
        self.scale = math.sqrt(config.d_model)

    def forward(
        self, features: torch.Tensor, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Shorten and widen the features.

        Args:
            lengths: [B] int64 frames of each utterance, or None when nothing is padded.

        Returns:
            [B, T', d_model] float32 (padding is zero) and the new lengths [B], T' = ⌈T / 2ⁿ⌉.
        """
        if self._inference is not None and lengths is None:
            for shortened in self._inference:
                features = shortened(features)
            return features, None
        hidden = features.transpose(1, 2)
        for conv in self.conv_layers:
            hidden = functional.glu(conv(functional.pad(hidden, self.padding)), dim=1)
            if lengths is not None:
                lengths = (lengths + 1) // 2
                hidden = hidden * valid_frames(lengths, hidden.shape[2])[:, None]
        return hidden.transpose(1, 2).float() * self.scale, lengths

    def prepare(self, dtype: torch.dtype) -> None:
        """For inference only: packed weights for utterances that are not padded."""
        last = len(self.conv_layers) - 1
        self._inference = nn.ModuleList(
            StridedConvolution(conv, dtype, self.scale if index == last else 1.0)
            for index, conv in enumerate(self.conv_layers)
            if isinstance(conv, nn.Conv1d)
        )


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


class FeedForward(nn.Module):
    """LayerNorm, d → multiplier · d, SiLU, back to d."""

    def __init__(self, width: int, multiplier: int, dropout: float) -> None:
        super().__init__()
        self.layernorm = nn.LayerNorm(width)
        self.first_linear = nn.Linear(width, multiplier * width)
        self.second_linear = nn.Linear(multiplier * width, width)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, T, d] → [B, T, d]; the caller adds half of it to the residual stream."""
        inner = functional.silu(self.first_linear(self.layernorm(hidden)))
        output: torch.Tensor = self.dropout(self.second_linear(self.dropout(inner)))
        return output


class ConvolutionModule(nn.Module):
    """Pointwise and gate, depthwise over time, BatchNorm, SiLU, pointwise."""

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.layernorm = nn.LayerNorm(width)
        self.first_pointwise_conv1d = nn.Linear(width, 2 * width)
        self.depthwise_conv1d = nn.Conv1d(
            width, width, kernel, padding=kernel // 2, groups=width, bias=False
        )
        self.batchnorm = nn.BatchNorm1d(width)
        self.second_pointwise_conv1d = nn.Linear(width, width)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
        """[B, T, d] → [B, T, d]; `valid` [B, T] bool, or None when nothing is padded."""
        gated = functional.glu(self.first_pointwise_conv1d(self.layernorm(hidden)), dim=-1)
        if valid is not None:
            gated = gated * valid[..., None]
        inner = functional.silu(self._mixed(gated, valid))
        output: torch.Tensor = self.dropout(self.second_pointwise_conv1d(inner))
        return output if valid is None else output * valid[..., None]

    def _mixed(self, gated: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
        """Depthwise convolution and BatchNorm, [B, T, d] → [B, T, d] float32, padding zero."""
        mixed = self.depthwise_conv1d(gated.transpose(1, 2)).transpose(1, 2).float()
        # In training only real frames count in the statistics: padding would bias them towards 0.
        if self.training and valid is not None:
            normalised = torch.zeros_like(mixed)
            normalised[valid] = self.batchnorm(mixed[valid])
            return normalised
        output: torch.Tensor = self.batchnorm(mixed.flatten(0, 1)).view_as(mixed)
        return output if valid is None else output * valid[..., None]


class ConformerLayer(nn.Module):
    """Half a feed-forward, self-attention, convolution, half a feed-forward, LayerNorm."""

    def __init__(self, config: EncoderConfig, dropout: float = 0.0) -> None:
        super().__init__()
        width = config.d_model
        self.first_feed_forward = FeedForward(width, config.ffn_multiplier, dropout)
        self.attention_norm = nn.LayerNorm(width)
        self.attention = RelativeAttention(config, dropout)
        self.conv_module = ConvolutionModule(width, config.depthwise_kernel, dropout)
        self.second_feed_forward = FeedForward(width, config.ffn_multiplier, dropout)
        self.layernorm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        hidden: torch.Tensor,
        rows: torch.Tensor,
        lengths: torch.Tensor | None = None,
        valid: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """[B, T, d] → [B, T, d] float32.

        Args:
            lengths: [B] int64, or None when nothing is padded.
            valid: [B, T] bool, the same as a mask, or None.
        """
        blocked = None if valid is None else ~valid[:, None, None, :]
        hidden = hidden + 0.5 * self.first_feed_forward(hidden)
        attended = self.attention(self.attention_norm(hidden), rows, lengths, blocked)
        hidden = hidden + self.dropout(attended)
        hidden = hidden + self.conv_module(hidden, valid)
        hidden = hidden + 0.5 * self.second_feed_forward(hidden)
        output: torch.Tensor = self.layernorm(hidden)
        return output
