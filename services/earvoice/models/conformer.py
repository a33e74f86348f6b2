"""The papers' Conformer (Gulati 2020): strided convolutions and layers."""

import math

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.config import EncoderConfig
from earvoice.models.inference import (
    DepthwiseConvolution,
    InferenceLinear,
    StridedConvolution,
    prepare_linears,
)
from earvoice.models.relative_attention import FusedAttention, RelativeAttention
from earvoice.models.transformer import Dropout, valid_frames


def subsampled_lengths(lengths: torch.Tensor, layers: int) -> torch.Tensor:
    """Frames left after `layers` convolutions of stride 2: each gives ⌈length / 2⌉."""
    for _ in range(layers):
        lengths = (lengths + 1) // 2
    return lengths


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
        self._causal = config.causal

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
        if self._causal:
            return
        last = len(self.conv_layers) - 1
        self._inference = nn.ModuleList(
            StridedConvolution(conv, dtype, self.scale if index == last else 1.0)
            for index, conv in enumerate(self.conv_layers)
            if isinstance(conv, nn.Conv1d)
        )


class FeedForward(nn.Module):
    """LayerNorm, d → multiplier · d, SiLU, back to d; half of the result is added to the input."""

    def __init__(self, width: int, multiplier: int, dropout: float) -> None:
        super().__init__()
        self.layernorm = nn.LayerNorm(width)
        self.first_linear: nn.Linear | InferenceLinear = nn.Linear(width, multiplier * width)
        self.second_linear: nn.Linear | InferenceLinear = nn.Linear(multiplier * width, width)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, T, d] → [B, T, d] float32."""
        first, second = self.first_linear, self.second_linear
        normed = self.layernorm(hidden)
        if isinstance(first, InferenceLinear) and isinstance(second, InferenceLinear):
            return second.added_to(hidden, first.product(normed))
        inner = self.dropout(functional.silu(first(normed)))
        total: torch.Tensor = hidden + 0.5 * self.dropout(second(inner))
        return total

    def prepare(self, dtype: torch.dtype) -> None:
        """For inference only: SiLU and the factor 1/2 become part of the products."""
        first, second = self.first_linear, self.second_linear
        if isinstance(first, nn.Linear) and isinstance(second, nn.Linear):
            self.first_linear = InferenceLinear.from_linear(first, dtype, "swish")
            # Halving is exact in floating point.
            self.second_linear = InferenceLinear(0.5 * second.weight, 0.5 * second.bias, dtype)


class ConvolutionModule(nn.Module):
    """Pointwise and gate, depthwise over time, BatchNorm, SiLU, pointwise; added to the input."""

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.layernorm = nn.LayerNorm(width)
        self.first_pointwise_conv1d = nn.Linear(width, 2 * width)
        self.depthwise_conv1d = nn.Conv1d(
            width, width, kernel, padding=kernel // 2, groups=width, bias=False
        )
        self.batchnorm = nn.BatchNorm1d(width)
        self.second_pointwise_conv1d: nn.Linear | InferenceLinear = nn.Linear(width, width)
        self.dropout = Dropout(dropout)
        self._folded: DepthwiseConvolution | None = None

    def forward(
        self, hidden: torch.Tensor, valid: torch.Tensor | None, frames: int
    ) -> torch.Tensor:
        """[B, R, d] → [B, R, d] float32; see `ConformerLayer.forward`.

        Frames that are not valid are zero to their neighbours.
        """
        gated = functional.glu(self.first_pointwise_conv1d(self.layernorm(hidden)), dim=-1)
        if frames < gated.shape[1]:
            gated[:, frames:] = 0
        if valid is not None:
            gated = gated * valid[..., None]
        second = self.second_pointwise_conv1d
        if self._folded is not None and isinstance(second, InferenceLinear):
            return second.added_to(hidden, self._folded(gated))
        inner = functional.silu(self._mixed(gated, valid))
        output: torch.Tensor = self.dropout(second(inner))
        return hidden + (output if valid is None else output * valid[..., None])

    def prepare(self, dtype: torch.dtype) -> None:
        """For inference only: BatchNorm and SiLU become part of the convolution."""
        self._folded = DepthwiseConvolution(self.depthwise_conv1d, self.batchnorm)
        del self.depthwise_conv1d, self.batchnorm
        prepare_linears(self, dtype)

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
        self.attention: RelativeAttention | FusedAttention = RelativeAttention(config, dropout)
        self.conv_module = ConvolutionModule(width, config.depthwise_kernel, dropout)
        self.second_feed_forward = FeedForward(width, config.ffn_multiplier, dropout)
        self.layernorm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        hidden: torch.Tensor,
        valid: torch.Tensor | None = None,
        *,
        frames: int,
        rows: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute the layer.

        Args:
            hidden: [B, R, d] float32.
            valid: [B, R] bool, or None when nothing is padded.
            frames: T ≤ R, the rows of sound or padding; later rows mean nothing.
            rows: [n, d] float32 from `position_rows`; a layer for inference has its own.

        Returns:
            [B, R, d] float32. In inference padded frames are not zeroed; nothing reads them.
        """
        hidden = self.first_feed_forward(hidden)
        normed = self.attention_norm(hidden)
        if isinstance(self.attention, FusedAttention):
            hidden = self.attention.added_to(hidden, normed, valid, frames)
        else:
            lengths = None if valid is None else valid.sum(1)
            hidden = hidden + self.dropout(self.attention(normed, rows, lengths, valid))
        hidden = self.conv_module(hidden, valid, frames)
        output: torch.Tensor = self.layernorm(self.second_feed_forward(hidden))
        return output

    def prepare(self, dtype: torch.dtype) -> None:
        """For inference only: see `earvoice.models.inference`."""
        if isinstance(self.attention, RelativeAttention):
            self.attention = FusedAttention(self.attention, dtype)
        prepare_linears(self, dtype)
