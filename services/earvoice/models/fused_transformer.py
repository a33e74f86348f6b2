"""The Transformer layers of encoder and decoder for inference, in fewer passes over memory."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.conformer import valid_frames
from earvoice.models.inference import InferenceLinear
from earvoice.models.transformer import DecoderLayer, MultiHeadAttention, TransformerEncoderLayer


class FusedFeedForward(nn.Module):
    """LayerNorm, feed-forward and the sum with the residual stream."""

    def __init__(self, plain: TransformerEncoderLayer | DecoderLayer, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = plain.final_layer_norm
        self.first = InferenceLinear.from_linear(plain.fc1, dtype, plain.activation)
        self.second = InferenceLinear.from_linear(plain.fc2, dtype)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[…, d] → […, d] float32."""
        return self.second.added_to(hidden, self.first.product(self.norm(hidden)))


def joined_linears(parts: Sequence[nn.Linear]) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of layers that read the same, as one layer; no bias is zeros."""
    biases: list[torch.Tensor] = [
        part.weight.new_zeros(part.out_features) if part.bias is None else part.bias
        for part in parts
    ]
    weights: list[torch.Tensor] = [part.weight for part in parts]
    return torch.cat(weights), torch.cat(biases)


class FusedProjections(nn.Module):
    """Query, key and value of self-attention in one product."""

    def __init__(self, attention: MultiHeadAttention, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = attention.heads
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        self.linear = InferenceLinear(*joined_linears(parts), dtype)

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """[…, L, d] → three of […, heads, L, d_head] float32."""
        projected: torch.Tensor = self.linear(hidden)
        projected = projected.view(*projected.shape[:-1], 3, self.heads, -1)
        return projected.transpose(-4, -3).transpose(-3, -2).unbind(-4)


class FusedEncoderLayer(nn.Module):
    def __init__(self, plain: TransformerEncoderLayer, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = plain.self_attn_layer_norm
        self.projections = FusedProjections(plain.self_attn, dtype)
        self.output = InferenceLinear.from_linear(plain.self_attn.out_proj, dtype)
        self.feed_forward = FusedFeedForward(plain, dtype)

    def forward(
        self, hidden: torch.Tensor, frames: int, lengths: torch.Tensor | None
    ) -> torch.Tensor:
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


class FusedDecoderLayer(nn.Module):
    """The parts of a `DecoderLayer` around its attention, each with its norm and residual sum."""

    def __init__(self, plain: DecoderLayer, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = plain.heads
        self.text, self.source = plain.text, plain.source
        if plain.text:
            self.self_norm = plain.self_attn_layer_norm
            self.self_projections = FusedProjections(plain.self_attn, dtype)
            self.self_output = InferenceLinear.from_linear(plain.self_attn.out_proj, dtype)
        if plain.source:
            cross = plain.encoder_attn
            self.cross_norm = plain.encoder_attn_layer_norm
            self.cross_query = InferenceLinear.from_linear(cross.q_proj, dtype)
            self.cross_output = InferenceLinear.from_linear(cross.out_proj, dtype)
            self.memory = InferenceLinear(*joined_linears((cross.k_proj, cross.v_proj)), dtype)
        self.last = FusedFeedForward(plain, dtype)

    def forward(
        self, hidden: torch.Tensor, memory: torch.Tensor, allowed: torch.Tensor
    ) -> torch.Tensor:
        """Teacher forcing: [B, L, d] → [B, L, d]; see `DecoderLayer.forward`."""
        if self.text:
            query, keys, values = self.project_self(hidden)
            attended = functional.scaled_dot_product_attention(query, keys, values, is_causal=True)
            hidden = self.add_self(hidden, attended.transpose(1, 2).flatten(2))
        if self.source:
            keys, values = self.project_memory(memory).unbind(0)
            attended = functional.scaled_dot_product_attention(
                self.project_cross(hidden), keys, values, attn_mask=allowed
            )
            hidden = self.add_cross(hidden, attended.transpose(1, 2).flatten(2))
        return self.add_feed_forward(hidden)

    def project_memory(self, states: torch.Tensor) -> torch.Tensor:
        """[…, S, d] encoder states → keys and values [2, …, heads, S, d_head] float32."""
        projected: torch.Tensor = self.memory(states)
        projected = projected.view(*projected.shape[:-1], 2, self.heads, -1)
        return projected.movedim(-3, 0).transpose(-3, -2)

    def project_self(self, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """[n, d] → query, key and value [heads, n, d_head] of self-attention."""
        projected: tuple[torch.Tensor, ...] = self.self_projections(self.self_norm(hidden))
        return projected

    def add_self(self, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """[n, d] and what self-attention gave, [n, d] → [n, d]."""
        return self.self_output.added_to(hidden, attended)

    def project_cross(self, hidden: torch.Tensor) -> torch.Tensor:
        """[n, d] → query [heads, n, d_head] of cross-attention."""
        queries: torch.Tensor = self.cross_query(self.cross_norm(hidden))
        return queries.view(*queries.shape[:-1], self.heads, -1).transpose(-3, -2)

    def add_cross(self, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        return self.cross_output.added_to(hidden, attended)

    def add_feed_forward(self, hidden: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.last(hidden)
        return output
