"""The Transformer decoder (Vaswani 2017, pre-norm), for training and for teacher forcing."""

import math

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.attention import MultiHeadAttention
from earvoice.models.config import ModelConfig
from earvoice.models.dropout import Dropout
from earvoice.models.token_positions import TokenPositions
from earvoice.models.vocabulary import PAD


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention, ReLU feed-forward; LayerNorm before each."""

    def __init__(self, config: ModelConfig, dropout: float) -> None:
        super().__init__()
        width = config.encoder.d_model
        self.heads = config.decoder.heads
        self.self_attn = MultiHeadAttention(width, config.decoder.heads, dropout)
        self.self_attn_layer_norm = nn.LayerNorm(width)
        self.encoder_attn = MultiHeadAttention(width, config.decoder.heads, dropout)
        self.encoder_attn_layer_norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, config.decoder.ffn_width)
        self.fc2 = nn.Linear(config.decoder.ffn_width, width)
        self.final_layer_norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(
        self, hidden: torch.Tensor, memory: torch.Tensor, allowed: torch.Tensor
    ) -> torch.Tensor:
        """[B, L, d] → [B, L, d]; `memory` [B, S, d], `allowed` [B, 1, 1 or L, S] bool."""
        normed = self.self_attn_layer_norm(hidden)
        hidden = hidden + self.dropout(self.self_attn(normed, normed, causal=True))
        normed = self.encoder_attn_layer_norm(hidden)
        hidden = hidden + self.dropout(self.encoder_attn(normed, memory, allowed))
        output: torch.Tensor = hidden + self.dropout(self.feed_forward(hidden))
        return output

    def project_memory(self, states: torch.Tensor) -> torch.Tensor:
        """[S, d] encoder states → keys and values [2, heads, S, d_head] float32."""
        cross = self.encoder_attn
        projections = (cross.k_proj(states), cross.v_proj(states))
        return torch.stack([cross.by_head(projected) for projected in projections])

    def project_self(self, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """[n, d] → query, key and value [heads, n, d_head] of self-attention."""
        own, normed = self.self_attn, self.self_attn_layer_norm(hidden)
        projections = (own.q_proj, own.k_proj, own.v_proj)
        return tuple(own.by_head(projection(normed)) for projection in projections)

    def add_self(self, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """[n, d] and what self-attention gave, [n, d] → [n, d]."""
        output: torch.Tensor = hidden + self.self_attn.out_proj(attended)
        return output

    def project_cross(self, hidden: torch.Tensor) -> torch.Tensor:
        """[n, d] → query [heads, n, d_head] of cross-attention."""
        cross = self.encoder_attn
        return cross.by_head(cross.q_proj(self.encoder_attn_layer_norm(hidden)))

    def add_cross(self, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """[n, d] and what cross-attention gave, [n, d] → [n, d]."""
        output: torch.Tensor = hidden + self.encoder_attn.out_proj(attended)
        return output

    def add_feed_forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[n, d] → [n, d]."""
        return hidden + self.feed_forward(hidden)

    def feed_forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[…, d] → […, d], LayerNorm included, residual not."""
        inner = functional.relu(self.fc1(self.final_layer_norm(hidden)))
        output: torch.Tensor = self.fc2(self.dropout(inner))
        return output


class TransformerDecoder(nn.Module):
    """Embedding, layers, final LayerNorm, output projection without bias."""

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__()
        width = config.encoder.d_model
        self.config = config
        self.embed_tokens = nn.Embedding(config.target_pieces, width, padding_idx=PAD)
        nn.init.normal_(self.embed_tokens.weight, std=width**-0.5)
        with torch.no_grad():
            self.embed_tokens.weight[PAD].zero_()
        self.layers = nn.ModuleList(
            DecoderLayer(config, dropout) for _ in range(config.decoder.layers)
        )
        self.layer_norm = nn.LayerNorm(width)
        self.output_projection = nn.Linear(width, config.target_pieces, bias=False)
        nn.init.normal_(self.output_projection.weight, std=width**-0.5)
        self.tie_embeddings()
        self.dropout = Dropout(dropout)
        self._embedding_scale = math.sqrt(width)
        self.positions = TokenPositions(width)

    def tie_embeddings(self) -> None:
        """Let embedding and output projection share one matrix, if the configuration says so."""
        if self.config.decoder.tied_embeddings:
            self.output_projection.weight = self.embed_tokens.weight

    def forward(
        self,
        tokens: torch.Tensor,
        memory: torch.Tensor,
        memory_lengths: torch.Tensor,
        visible: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Teacher forcing.

        Args:
            tokens: [B, L] int64, beginning with the start token, padded on the right.
            memory: [B, S, d] encoder states.
            memory_lengths: [B] int64.
            visible: [B, L, S] bool, which states each row may look at, one at least; None is all.

        Returns:
            [B, L, V] float32 logits; row t predicts token t + 1.
        """
        frames = torch.arange(memory.shape[1], device=memory.device)
        allowed = (frames < memory_lengths[:, None])[:, None, None]
        if visible is not None:
            allowed = allowed & visible[:, None]
        positions = self.positions.up_to(tokens.shape[1], tokens.device)
        hidden = self.dropout(self.embed(tokens, positions))
        for layer in self.layers:
            hidden = layer(hidden, memory, allowed)
        return self.logits(hidden)

    def embed(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Tokens [B, L] or [L] with position rows [L, d] → [B, L, d] or [L, d] float32."""
        embedded: torch.Tensor = self.embed_tokens(tokens)
        return embedded * self._embedding_scale + positions

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[…, d] → […, V] float32."""
        output: torch.Tensor = self.output_projection(self.layer_norm(hidden)).float()
        return output
