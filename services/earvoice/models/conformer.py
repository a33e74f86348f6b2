"""The Conformer layer (Gulati 2020), as the papers' speech encoder uses it."""

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.config import EncoderConfig
from earvoice.models.dropout import Dropout
from earvoice.models.relative_attention import RelativeAttention


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
            hidden: [B, T, d] float32.
            rows: [n, d] sinusoid rows for T frames.
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
