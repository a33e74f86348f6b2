"""The Conformer layer for inference: the numbers of `conformer`, in fewer passes over memory."""

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.conformer import ConformerLayer, ConvolutionModule, FeedForward
from earvoice.models.convolution import DepthwiseConvolution
from earvoice.models.fused_attention import FusedAttention
from earvoice.models.inference import InferenceLinear
from earvoice.models.subsampler import valid_frames


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
    """A `ConformerLayer` that only infers."""

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
