"""Multi-head attention with separate projections (Vaswani 2017)."""

import torch
from torch import nn
from torch.nn import functional


class MultiHeadAttention(nn.Module):
    """The four projections of multi-head attention, queries scaled by √d_head⁻¹."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)

    def by_head(self, projected: torch.Tensor) -> torch.Tensor:
        """[…, L, d] → […, heads, L, d_head]."""
        return projected.view(*projected.shape[:-1], self.heads, -1).transpose(-2, -3)

    def forward(
        self,
        queries: torch.Tensor,
        memory: torch.Tensor,
        allowed: torch.Tensor | None = None,
        *,
        causal: bool = False,
    ) -> torch.Tensor:
        """[B, L, d] queries over [B, S, d] memory → [B, L, d].

        `allowed` [B, 1, 1 or L, S] bool masks memory; None lets all of it be seen.
        """
        attended = functional.scaled_dot_product_attention(
            self.by_head(self.q_proj(queries)),
            self.by_head(self.k_proj(memory)),
            self.by_head(self.v_proj(memory)),
            attn_mask=allowed,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=causal,
        )
        output: torch.Tensor = self.out_proj(attended.transpose(1, 2).flatten(2))
        return output
