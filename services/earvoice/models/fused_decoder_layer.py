"""The decoder layer for inference: the numbers of `transformer`, in fewer passes over memory."""

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.fused_transformer import FusedFeedForward, FusedProjections
from earvoice.models.inference import InferenceLinear
from earvoice.models.transformer import DecoderLayer


class FusedDecoderLayer(nn.Module):
    """The parts of a `DecoderLayer` around its attention, each with its norm and residual sum."""

    def __init__(self, plain: DecoderLayer, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = plain.heads
        self.self_norm = plain.self_attn_layer_norm
        self.self_projections = FusedProjections(plain.self_attn, dtype)
        self.self_output = InferenceLinear.from_linear(plain.self_attn.out_proj, dtype)
        cross = plain.encoder_attn
        self.cross_norm = plain.encoder_attn_layer_norm
        self.cross_query = InferenceLinear.from_linear(cross.q_proj, dtype)
        self.cross_output = InferenceLinear.from_linear(cross.out_proj, dtype)
        self.last = FusedFeedForward(plain.final_layer_norm, plain.fc1, plain.fc2, dtype)
        self.memory = InferenceLinear(
            torch.cat((cross.k_proj.weight, cross.v_proj.weight)),
            torch.cat((cross.k_proj.bias, cross.v_proj.bias)),
            dtype,
        )

    def forward(
        self, hidden: torch.Tensor, memory: torch.Tensor, allowed: torch.Tensor
    ) -> torch.Tensor:
        """Teacher forcing: [B, L, d] → [B, L, d]; see `DecoderLayer.forward`."""
        query, keys, values = self.project_self(hidden)
        attended = functional.scaled_dot_product_attention(query, keys, values, is_causal=True)
        hidden = self.add_self(hidden, attended.transpose(1, 2).flatten(2))
        keys, values = self.project_memory(memory).unbind(0)
        attended = functional.scaled_dot_product_attention(
            self.project_cross(hidden), keys, values, attn_mask=allowed
        )
        return self.add_feed_forward(self.add_cross(hidden, attended.transpose(1, 2).flatten(2)))

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
        """[n, d] and what cross-attention gave, [n, d] → [n, d]."""
        return self.cross_output.added_to(hidden, attended)

    def add_feed_forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[n, d] → [n, d]."""
        output: torch.Tensor = self.last(hidden)
        return output
