"""An encoder family as a newcomer adds one: this module and a row."""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from torch import nn

from earvoice.models.config import FamilyConfig, ModelConfig
from earvoice.models.ctc import Encoded, compress
from earvoice.models.encoder import SpeechEncoder
from earvoice.models.families import EncoderFamily
from earvoice.models.frontend import Filterbank
from earvoice.runtime.parameter import parameter


@dataclasses.dataclass(frozen=True)
class ToyConfig(FamilyConfig):
    """Joins frames, and that is all."""

    architecture: Literal["toy"] = "toy"
    join_frames: int = parameter(5, minimum=1, maximum=100)

    @property
    def frame_shift_ms(self) -> int:
        return 10 * self.join_frames

    @property
    def description(self) -> str:
        return f"toy, {self.join_frames} frames a state"


class ToyEncoder(SpeechEncoder):
    """A mean of some frames, and two products of it."""

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__(config.mel_bins)
        del dropout
        assert isinstance(config.encoder, ToyConfig)
        self.join, self.compression = config.encoder.join_frames, config.encoder.compression
        self.states = nn.Linear(config.mel_bins, config.encoder.d_model)
        self.labels = nn.Linear(config.mel_bins, config.source_pieces + 1)

    def forward(self, features: torch.Tensor, lengths: torch.Tensor | None = None) -> Encoded:
        if lengths is None:
            lengths = features.new_full(features.shape[:1], features.shape[1], dtype=torch.long)
        padded = nn.functional.pad(features, (0, 0, 0, -features.shape[1] % self.join))
        joined = padded.view(len(features), -1, self.join, self.mel_bins).mean(2)
        log_probs = self.labels(joined).float().log_softmax(-1)
        frames = -(-lengths // self.join)
        return compress(self.states(joined), frames, log_probs, self.compression)


class LouderFilterbank(Filterbank):
    """Other features: the same twice as loud."""

    scale = 2 * Filterbank.scale


FAMILY = EncoderFamily(config=ToyConfig, encoder=ToyEncoder, analysis=LouderFilterbank)
