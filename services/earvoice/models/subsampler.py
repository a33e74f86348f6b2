"""Strided convolutions between the features and the encoder."""

import math

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.config import EncoderConfig
from earvoice.models.convolution import StridedConvolution


def subsampled_lengths(lengths: torch.Tensor, layers: int) -> torch.Tensor:
    """Frames left after `layers` convolutions of stride 2: each gives ⌈length / 2⌉."""
    for _ in range(layers):
        lengths = (lengths + 1) // 2
    return lengths


def valid_frames(lengths: torch.Tensor, frames: int) -> torch.Tensor:
    """[B, frames] bool, true where a frame of utterance b is sound and not padding."""
    return torch.arange(frames, device=lengths.device) < lengths[:, None]


class Subsampler(nn.Module):
    """Stride-2 convolutions with gated linear units; the output is scaled by √d_model."""

    def __init__(self, config: EncoderConfig, mel_bins: int) -> None:
        super().__init__()
        sub = config.subsampler
        inputs = [mel_bins, *[sub.channels // 2] * (sub.layers - 1)]
        outputs = [*[sub.channels] * (sub.layers - 1), 2 * config.d_model]
        self.conv_layers = nn.ModuleList(
            nn.Conv1d(i, o, sub.kernel_frames, stride=2, padding=sub.kernel_frames // 2)
            for i, o in zip(inputs, outputs, strict=True)
        )
        self._inference: nn.ModuleList | None = None
        self.scale = math.sqrt(config.d_model)

    def forward(
        self, features: torch.Tensor, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Shorten and widen the features.

        Args:
            features: [B, T, mel] float32, normalised.
            lengths: [B] int64 frames of each utterance, or None when nothing is padded.

        Returns:
            [B, T', d_model] float32 (padding is zero) and the new lengths [B], T' = ⌈T / 2ⁿ⌉.
        """
        if self._inference is not None and lengths is None:
            for shortened in self._inference:
                features = shortened(features)
            return features, None
        hidden = features.transpose(1, 2)
        for conv in self.conv_layers:
            hidden = functional.glu(conv(hidden), dim=1)
            if lengths is not None:
                lengths = (lengths + 1) // 2
                hidden = hidden * valid_frames(lengths, hidden.shape[2])[:, None]
        return hidden.transpose(1, 2).float() * self.scale, lengths

    def prepare(self, dtype: torch.dtype) -> None:
        """For inference only: packed weights for utterances that are not padded."""
        last = len(self.conv_layers) - 1
        self._inference = nn.ModuleList(
            StridedConvolution(conv, dtype, self.scale if index == last else 1.0)
            for index, conv in enumerate(self.conv_layers)
            if isinstance(conv, nn.Conv1d)
        )
