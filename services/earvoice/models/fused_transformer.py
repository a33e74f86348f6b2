"""The Transformer layers of encoder and decoder for inference, in fewer passes over memory."""

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.attention import MultiHeadAttention
from earvoice.models.inference import InferenceLinear
from earvoice.models.subsampler import valid_frames
from earvoice.models.transformer_encoder import TransformerEncoderLayer


class FusedFeedForward(nn.Module):
    """LayerNorm, ReLU feed-forward and the sum with the residual stream."""

    def __init__(
        self, norm: nn.LayerNorm, first: nn.Linear, second: nn.Linear, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.norm = norm
        self.first = InferenceLinear.from_linear(first, dtype, "relu")
        self.second = InferenceLinear.from_linear(second, dtype)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[…, d] → […, d] float32."""
        return self.second.added_to(hidden, self.first.product(self.norm(hidden)))


class FusedProjections(nn.Module):
    """Query, key and value of self-attention in one product."""

    def __init__(self, attention: MultiHeadAttention, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = attention.heads
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        weight = torch.cat([part.weight for part in parts])
        self.linear = InferenceLinear(weight, torch.cat([part.bias for part in parts]), dtype)

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """[…, L, d] → three of […, heads, L, d_head] float32."""
        projected: torch.Tensor = self.linear(hidden)
        projected = projected.view(*projected.shape[:-1], 3, self.heads, -1)
        return projected.transpose(-4, -3).transpose(-3, -2).unbind(-4)


class FusedEncoderLayer(nn.Module):
    """A `TransformerEncoderLayer` that only infers."""

    def __init__(self, plain: TransformerEncoderLayer, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = plain.self_attn_layer_norm
        self.projections = FusedProjections(plain.self_attn, dtype)
        self.output = InferenceLinear.from_linear(plain.self_attn.out_proj, dtype)
        self.feed_forward = FusedFeedForward(plain.final_layer_norm, plain.fc1, plain.fc2, dtype)

    def forward(
        self, hidden: torch.Tensor, frames: int, lengths: torch.Tensor | None
    ) -> torch.Tensor:
        """See `FusedConformerLayer.forward`."""
        query, key, value = self.projections(self.norm(hidden))
        allowed = None
        if lengths is not None:
            allowed = valid_frames(lengths, frames)[:, None, None, :]
        attended = functional.scaled_dot_product_attention(
            query, key[:, :, :frames], value[:, :, :frames], attn_mask=allowed
        )
        hidden = self.output.added_to(hidden, attended.transpose(1, 2).flatten(2))
        output: torch.Tensor = self.feed_forward(hidden)
        return output
