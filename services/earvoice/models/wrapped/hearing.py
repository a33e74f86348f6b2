"""From sound to encoder states, by a family's own feature extractor and encoder."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.errors import ModelInputError

MINIMUM_SAMPLES = SAMPLE_RATE_HZ // 10
"""Less than 100 ms fill no convolution of these encoders, and have no statistics."""
MEL_FRAME_SAMPLES = 160


class WrappedHearing:
    """Encodes whole utterances.

    Args:
        model: a `transformers` model of one of the families, in evaluation mode.
        extractor: its feature extractor.

    Attributes:
        dimension: values of one state.
        state_samples: 16 kHz samples that one state stands for.
        maximum_samples: longest sound; None where the encoder takes any.
    """

    def __init__(self, model: Any, extractor: Any) -> None:
        self._encoder = model.get_encoder()
        self._extractor = extractor
        self._kind = model.config.model_type
        config = model.config.encoder if self._kind == "speech-encoder-decoder" else model.config
        self.maximum_samples: int | None = None
        self.dimension = int(config.d_model if hasattr(config, "d_model") else config.hidden_size)
        if self._kind == "speech_to_text":
            self.state_samples = MEL_FRAME_SAMPLES << config.num_conv_layers
            self.maximum_samples = config.max_source_positions * MEL_FRAME_SAMPLES
        elif self._kind == "whisper":
            self.state_samples = 2 * MEL_FRAME_SAMPLES
            self.maximum_samples = extractor.n_samples
        else:
            self.dimension = int(getattr(config, "output_hidden_size", None) or self.dimension)
            adapters = config.adapter_stride**config.num_adapter_layers if config.add_adapter else 1
            self.state_samples = math.prod(config.conv_stride) * adapters

    @torch.inference_mode()
    def states(self, sound: np.ndarray) -> torch.Tensor:
        """Encode one utterance.

        Args:
            sound: [n] float32 at 16 kHz in [-1, 1].

        Returns:
            [S, d] float32; none for less than 100 ms. Whisper's encoder always looks at 30 s: the
            states of the silence that fills them up stand for no sound, and are left out.

        Raises:
            ModelInputError: the sound is longer than the encoder takes.
        """
        if self.maximum_samples is not None and len(sound) > self.maximum_samples:
            message = f"sound has {len(sound)} samples; allowed: {self.maximum_samples}"
            raise ModelInputError(message)
        if len(sound) < MINIMUM_SAMPLES:
            return torch.zeros(0, self.dimension)
        # Statistics of digital silence divide by zero; what does not vary is at its mean.
        with np.errstate(divide="ignore", invalid="ignore"):
            extracted = self._extractor(sound, sampling_rate=SAMPLE_RATE_HZ, return_tensors="pt")
        parameter = next(self._encoder.parameters())
        inputs = extracted[self._extractor.model_input_names[0]].nan_to_num(0.0, 0.0, 0.0)
        states: torch.Tensor = self._encoder(inputs.to(parameter)).last_hidden_state[0].float()
        if self._kind == "whisper":
            states = states[: math.ceil(len(sound) / self.state_samples)]
        return states
