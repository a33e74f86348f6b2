"""The plain Transformer layer of the second encoder (Papi 2022, appendix A.1): pre-norm, ReLU."""

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.attention import MultiHeadAttention
from earvoice.models.config import EncoderConfig
from earvoice.models.dropout import Dropout


class TransformerEncoderLayer(nn.Module):
    """Self-attention over the whole utterance and a feed-forward; LayerNorm before each."""

    def __init__(self, config: EncoderConfig, dropout: float = 0.0) -> None:
        super().__init__()
        width = config.d_model
        self.self_attn = MultiHeadAttention(width, config.heads, dropout)
        self.self_attn_layer_norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, config.ffn_multiplier * width)
        self.fc2 = nn.Linear(config.ffn_multiplier * width, width)
        self.final_layer_norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
        """[B, T, d] → [B, T, d] float32; `valid` [B, T] bool, or None when nothing is padded."""
        allowed = None if valid is None else valid[:, None, None, :]
        normed = self.self_attn_layer_norm(hidden)
        hidden = hidden + self.dropout(self.self_attn(normed, normed, allowed))
        inner = functional.relu(self.fc1(self.final_layer_norm(hidden)))
        output: torch.Tensor = hidden + self.dropout(self.fc2(self.dropout(inner)))
        return output
