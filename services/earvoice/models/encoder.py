"""The speech encoder: subsampler, layers, CTC head, compression in the middle."""

import dataclasses
from itertools import chain

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.config import EncoderConfig, ModelConfig
from earvoice.models.conformer import ConformerLayer, Subsampler, position_rows, valid_frames
from earvoice.models.ctc import CompressedStates, compress
from earvoice.models.errors import ModelInputError
from earvoice.models.families import EncoderFamily
from earvoice.models.frontend import Filterbank
from earvoice.models.fused_conformer import FusedConformerLayer
from earvoice.models.fused_transformer import FusedEncoderLayer
from earvoice.models.inference import InferenceLinear, replace_linears, rounded_rows
from earvoice.models.transformer import Dropout, TokenPositions, TransformerEncoderLayer

PLAIN_ROW_STEP = 8
"""Rows are rounded to it where no product compiles for their number, but the convolution does."""


@dataclasses.dataclass(frozen=True)
class EncoderOutput:
    """What one utterance gives; an encoder frame lasts `frame_shift_ms` of the model's config."""

    states: torch.Tensor
    """[S, d] float32, after compression and the layers above it."""
    labels: torch.Tensor
    """[S] int64 CTC label of each state's first frame; the blank is the last index."""
    run_lengths: torch.Tensor
    """[S] int64 encoder frames behind each state; they add up to T'."""
    frame_labels: torch.Tensor
    """[T'] int64 greedy CTC label of every encoder frame, whatever the compression."""


@dataclasses.dataclass(frozen=True)
class EncodedBatch:
    compressed: CompressedStates
    """Its states are those after the last layer: [B, S, d]."""
    ctc_log_probs: torch.Tensor
    """[B, T', V+1] float32 at the CTC layer, blank last."""
    ctc_lengths: torch.Tensor
    """[B] int64 valid frames of T'."""


class SpeechEncoder(nn.Module):
    """What every family's encoder does for one utterance, and for inference."""

    def __init__(self, mel_bins: int) -> None:
        super().__init__()
        self.mel_bins = mel_bins
        self._prepared = False
        self._packed = False

    def forward(self, features: torch.Tensor, lengths: torch.Tensor | None = None) -> EncodedBatch:
        """Encode a padded batch.

        Args:
            features: [B, T, mel] float32, normalised, zero where padded.
            lengths: [B] int64 frames of each utterance, or None when nothing is padded.

        Returns:
            The batch; in evaluation mode each utterance's part equals that of encoding it alone.
        """
        raise NotImplementedError

    @torch.inference_mode()
    def encode(self, features: torch.Tensor) -> EncoderOutput:
        """Encode one utterance.

        Args:
            features: [T, mel] float32, normalised, T ≥ 1 frames of 10 ms.

        Returns:
            Tensors on the network's device.
        """
        if features.ndim != 2 or features.shape[0] < 1 or features.shape[1] != self.mel_bins:  # noqa: PLR2004 - two axes
            message = (
                f"features have shape {tuple(features.shape)}; allowed: [T ≥ 1, {self.mel_bins}]"
            )
            raise ModelInputError(message)
        # A network that is prepared for inference may have buffers alone.
        device = next(chain(self.parameters(), self.buffers())).device
        batch = self(features[None].to(device))
        compressed = batch.compressed
        return EncoderOutput(
            states=compressed.states[0],
            labels=compressed.labels[0],
            run_lengths=compressed.run_lengths[0],
            frame_labels=compressed.frame_labels[0],
        )

    def prepare(self, dtype: torch.dtype) -> None:
        """For inference only: see `earvoice.models.inference`."""
        replace_linears(self, dtype)
        self._prepared = True
        linears = [module for module in self.modules() if isinstance(module, InferenceLinear)]
        self._packed = any(linear.packed is not None for linear in linears)

    def _through_fused(
        self, layers: nn.ModuleList, hidden: torch.Tensor, lengths: torch.Tensor | None
    ) -> torch.Tensor:
        """[B, T, d] → [B, T, d]; one utterance gets its rows rounded once for all layers.

        Not where its length is given: masks are of T frames.
        """
        frames = hidden.shape[1]
        if hidden.shape[0] == 1 and lengths is None:
            rows = rounded_rows(frames) if self._packed else frames + -frames % PLAIN_ROW_STEP
            hidden = functional.pad(hidden, (0, 0, 0, rows - frames))
        for layer in layers:
            hidden = layer(hidden, frames, lengths)
        return hidden[:, :frames]


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

    def forward(self, features: torch.Tensor, lengths: torch.Tensor | None = None) -> EncodedBatch:
        hidden, lengths = self.subsample(features, lengths)
        if self._positions is not None:
            hidden = hidden + self._positions.up_to(hidden.shape[1], hidden.device)
        middle = self.config.ctc_layer
        hidden = self._through(self.layers[:middle], self.dropout(hidden), lengths)
        ctc_log_probs = self.ctc_fc(hidden).float().log_softmax(-1)
        if lengths is None:
            lengths = hidden.new_full(hidden.shape[:1], hidden.shape[1], dtype=torch.long)
        compressed = compress(hidden, lengths, ctc_log_probs, self.config.compression)
        above = compressed.lengths if hidden.shape[0] > 1 else None
        states = self.layer_norm(self._through(self.layers[middle:], compressed.states, above))
        return EncodedBatch(dataclasses.replace(compressed, states=states), ctc_log_probs, lengths)

    def prepare(self, dtype: torch.dtype) -> None:
        if not self.config.causal:
            self.layers = nn.ModuleList(_fused(layer, dtype) for layer in self.layers)
            self.subsample.prepare(dtype)
        super().prepare(dtype)

    def _through(
        self, layers: nn.ModuleList, hidden: torch.Tensor, lengths: torch.Tensor | None
    ) -> torch.Tensor:
        if self._prepared and not self.config.causal:
            return self._through_fused(layers, hidden, lengths)
        frames, width = hidden.shape[1:]
        valid = None if lengths is None else valid_frames(lengths, frames)
        if not self._conformer:
            for layer in layers:
                hidden = layer(hidden, valid)
            return hidden
        rows = position_rows(self.config.positions, frames, width).to(hidden.device)
        for layer in layers:
            hidden = layer(hidden, rows, lengths, valid)
        return hidden


def _layer(config: EncoderConfig, dropout: float) -> nn.Module:
    if config.architecture == "conformer":
        return ConformerLayer(config, dropout)
    width = config.d_model
    ffn_width = config.ffn_multiplier * width
    return TransformerEncoderLayer(width, config.heads, ffn_width, dropout, causal=config.causal)


def _fused(layer: nn.Module, dtype: torch.dtype) -> nn.Module:
    if isinstance(layer, ConformerLayer):
        return FusedConformerLayer(layer, dtype)
    assert isinstance(layer, TransformerEncoderLayer)  # noqa: S101 - there are two kinds
    return FusedEncoderLayer(layer, dtype)


FAMILY = EncoderFamily(config=EncoderConfig, encoder=PaperEncoder, analysis=Filterbank)
"""The encoders of the papers, Conformer and Transformer."""
