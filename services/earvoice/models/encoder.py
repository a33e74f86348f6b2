"""The speech encoder: subsampler, layers, CTC head, compression in the middle."""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import chain

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.config import EncoderConfig, ModelConfig
from earvoice.models.conformer import ConformerLayer, Subsampler
from earvoice.models.ctc import Encoded, compress
from earvoice.models.errors import ModelError
from earvoice.models.families import EncoderFamily
from earvoice.models.frontend import Filterbank
from earvoice.models.inference import InferenceLinear, prepare_linears, rounded_rows
from earvoice.models.relative_attention import position_rows
from earvoice.models.transformer import (
    Dropout,
    EarlierRows,
    TokenPositions,
    TransformerLayer,
    valid_frames,
)

PLAIN_ROW_STEP = 8
"""Rows are rounded to a multiple of it where only the convolution compiles for each number."""

GrowingEncoder = Callable[[torch.Tensor], tuple[Encoded, bool]]
"""From all features so far to what `SpeechEncoder.encode` returns, and whether every state was
computed from all of them."""


class SpeechEncoder(nn.Module):
    """What every family's encoder shares: encoding one utterance, and preparing for inference."""

    def __init__(self, mel_bins: int) -> None:
        super().__init__()
        self.mel_bins = mel_bins
        self._prepared = False
        self._packed = False

    def forward(self, features: torch.Tensor, lengths: torch.Tensor | None = None) -> Encoded:
        """Encode a padded batch.

        Args:
            features: [B, T, mel] float32, normalised, zero where padded.
            lengths: [B] int64 frames of each utterance, or None when nothing is padded.

        Returns:
            In evaluation mode each utterance's part equals the result of encoding it alone.
        """
        raise NotImplementedError

    @torch.inference_mode()
    def encode(self, features: torch.Tensor) -> Encoded:
        """Encode one utterance.

        Args:
            features: [T, mel] float32, normalised, T ≥ 1 frames of 10 ms.

        Returns:
            Tensors without the axis of a batch, on the network's device.
        """
        return alone(self(self.one_batch(features)))

    def one_batch(self, features: torch.Tensor) -> torch.Tensor:
        """[T, mel] → [1, T, mel] on the network's device."""
        if features.ndim != 2 or features.shape[0] < 1 or features.shape[1] != self.mel_bins:  # noqa: PLR2004 - two axes
            raise ModelError(
                f"features have shape {tuple(features.shape)}; allowed: [T ≥ 1, {self.mel_bins}]"
            )
        # A network that is prepared for inference may have no parameters, only buffers.
        return features[None].to(next(chain(self.parameters(), self.buffers())).device)

    def open_utterance(self) -> GrowingEncoder:
        """Return a function that encodes one utterance repeatedly as it grows."""
        return lambda features: (self.encode(features), True)

    def prepare(self, dtype: torch.dtype) -> None:
        """For inference only: see `earvoice.models.inference`."""
        prepare_linears(self, dtype)
        self._prepared = True
        linears = [module for module in self.modules() if isinstance(module, InferenceLinear)]
        self._packed = any(linear.packed is not None for linear in linears)

    def _through(
        self,
        layers: nn.ModuleList,
        hidden: torch.Tensor,
        lengths: torch.Tensor | None,
        earlier: Sequence[EarlierRows] = (),
        **positions: torch.Tensor | None,
    ) -> torch.Tensor:
        """[B, T, d] → [B, T, d]; for inference the number of rows is rounded once for all layers.

        Not where lengths are given: masks have T frames.

        Args:
            earlier: for each layer, the rows before these; empty if these are the first.
        """
        frames = hidden.shape[1]
        valid = None if lengths is None else valid_frames(lengths, frames)
        if self._prepared and hidden.shape[0] == 1 and lengths is None:
            rows = rounded_rows(frames) if self._packed else frames + -frames % PLAIN_ROW_STEP
            hidden = functional.pad(hidden, (0, 0, 0, rows - frames))
        for index, layer in enumerate(layers):
            before = {"earlier": earlier[index]} if earlier else {}
            hidden = layer(hidden, valid, frames=frames, **before, **positions)
        return hidden[:, :frames]


def alone(batch: Encoded) -> Encoded:
    """A batch of one utterance without the batch's axis."""
    return Encoded(*(getattr(batch, field.name)[0] for field in dataclasses.fields(batch)))


class PaperEncoder(SpeechEncoder):
    """Conformer or Transformer encoder with CTC compression after layer `ctc_layer` (Papi 2022)."""

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__(config.mel_bins)
        self.config = config.papers_encoder
        self.subsample = Subsampler(self.config, config.mel_bins)
        self.dropout = Dropout(dropout)
        self._conformer = self.config.architecture == "conformer"
        self.layers = nn.ModuleList(_layer(self.config, dropout) for _ in range(self.config.layers))
        # The Conformer's layers end with a LayerNorm of their own and know relative positions.
        width = self.config.d_model
        self.layer_norm = nn.Identity() if self._conformer else nn.LayerNorm(width)
        self._positions = None if self._conformer else TokenPositions(width)
        self.ctc_fc = nn.Linear(width, config.source_pieces + 1)

    def forward(self, features: torch.Tensor, lengths: torch.Tensor | None = None) -> Encoded:
        hidden, lengths = self.subsample(features, lengths)
        if self._positions is not None:
            hidden = hidden + self._positions.up_to(hidden.shape[1], hidden.device)
        middle = self.config.ctc_layer
        hidden = self._read(self.layers[:middle], self.dropout(hidden), lengths)
        ctc_log_probs = self.ctc_fc(hidden).float().log_softmax(-1)
        if lengths is None:
            lengths = hidden.new_full(hidden.shape[:1], hidden.shape[1], dtype=torch.long)
        encoded = compress(hidden, lengths, ctc_log_probs, self.config.compression)
        above = encoded.lengths if hidden.shape[0] > 1 else None
        states = self.layer_norm(self._read(self.layers[middle:], encoded.states, above))
        return dataclasses.replace(encoded, states=states)

    def _read(
        self, layers: nn.ModuleList, hidden: torch.Tensor, lengths: torch.Tensor | None
    ) -> torch.Tensor:
        if not self._conformer:
            return self._through(layers, hidden, lengths)
        rows = None
        if not self._prepared:
            frames, width = hidden.shape[1:]
            rows = position_rows(self.config.positions, frames, width).to(hidden.device)
        return self._through(layers, hidden, lengths, rows=rows)


def _layer(config: EncoderConfig, dropout: float) -> nn.Module:
    if config.architecture == "conformer":
        return ConformerLayer(config, dropout)
    width = config.d_model
    ffn_width = config.ffn_multiplier * width
    return TransformerLayer(width, config.heads, ffn_width, dropout, causal=config.causal)


FAMILY = EncoderFamily(config=EncoderConfig, encoder=PaperEncoder, analysis=Filterbank)
"""The encoders of the papers, Conformer and Transformer."""
