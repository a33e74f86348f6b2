"""A text-to-text teacher, whose translations speech can learn from (Papi 2022, section 6.2)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import nn

from earvoice.models.conformer import valid_frames
from earvoice.models.decoding import CachedDecoder
from earvoice.models.transformer import TokenPositions
from earvoice.training.recipe import HEARD_EXACTLY

if TYPE_CHECKING:
    from earvoice.models.config import ModelConfig
    from earvoice.training.recipe import TeacherRecipe


class TextTeacher(nn.Module):
    """A Transformer (Vaswani 2017, pre-norm) from source pieces to target pieces.

    Sequence-level distillation (Kim 2016): a student learns what the teacher writes, which is
    simpler and steadier than what people wrote.

    Attributes:
        heard: how transcripts are shown to it.
    """

    heard = HEARD_EXACTLY

    def __init__(self, config: ModelConfig, recipe: TeacherRecipe) -> None:
        """Build a teacher with random weights.

        Args:
            config: of the student: its pieces are the teacher's.
            recipe: the teacher's own size.
        """
        super().__init__()
        width = recipe.width
        layer = nn.TransformerEncoderLayer(
            width,
            recipe.heads,
            2 * width,
            recipe.dropout,
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            layer, recipe.encoder_layers, nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.embed_source = nn.Embedding(config.source_pieces + 1, width)
        nn.init.normal_(self.embed_source.weight, std=width**-0.5)
        self._scale = width**0.5
        self._positions = TokenPositions(width)
        self.decoder = CachedDecoder(_decoder_config(config, recipe), recipe.dropout)

    def forward(
        self, labels: torch.Tensor, lengths: torch.Tensor, previous_tokens: torch.Tensor
    ) -> torch.Tensor:
        """Teacher forcing.

        Args:
            labels: [B, S] int64 source pieces.
            lengths: [B] int64 valid labels.
            previous_tokens: [B, L] int64, start token first.

        Returns:
            Logits [B, L, V] float32.
        """
        states = self.encode(labels, lengths)
        logits: torch.Tensor = self.decoder(previous_tokens, states, lengths)
        return logits

    def encode(self, labels: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the states of [B, S] labels, [B, S, d] float32; those of padding mean nothing."""
        positions = self._positions.up_to(labels.shape[1], labels.device)
        hidden = self.embed_source(labels) * self._scale + positions
        padded = ~valid_frames(lengths, labels.shape[1])
        states: torch.Tensor = self.encoder(hidden, src_key_padding_mask=padded)
        return states


def _decoder_config(config: ModelConfig, recipe: TeacherRecipe) -> ModelConfig:
    return dataclasses.replace(
        config,
        encoder=dataclasses.replace(
            config.papers_encoder, d_model=recipe.width, heads=recipe.heads
        ),
        decoder=dataclasses.replace(
            config.decoder,
            layers=recipe.decoder_layers,
            heads=recipe.heads,
            ffn_width=2 * recipe.width,
        ),
    )
