"""The Silero voice-activity network (version 6, 16 kHz), computed for many windows at once."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from earvoice.models.config import SPEECH_WINDOW_SAMPLES
from earvoice.models.errors import ModelError

CONTEXT_SAMPLES = 64
"""Samples before a window that the network reads with it."""

STFT_LENGTH = 256
STFT_SHIFT = 128
STFT_BINS = STFT_LENGTH // 2 + 1
WIDTH = 128

WEIGHTS_PACKAGE = "silero_vad"
WEIGHTS_FILE = "data/silero_vad.jit"


DetectorState = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""What the network remembers between windows: the LSTM's hidden and cell state [1, 1, 128], and the
last samples heard [64], all float32."""


class SpeechDetector(nn.Module):
    """Magnitude spectrum, four convolutions, an LSTM over the windows, one probability a window.

    The convolutions take all windows as one batch; only the LSTM runs over time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stft = nn.Linear(STFT_LENGTH, 2 * STFT_BINS, bias=False)
        self.convolutions = nn.Sequential(
            nn.Conv1d(STFT_BINS, 128, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(128, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv1d(64, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv1d(64, WIDTH, 3, padding=1),
            nn.ReLU(),
        )
        self.lstm = nn.LSTM(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, 1)

    @torch.inference_mode()
    def forward(
        self, samples: torch.Tensor, state: DetectorState | None = None
    ) -> tuple[list[float], DetectorState]:
        """Judge the next windows.

        Args:
            samples: [n · 512] float32 at 16 kHz in [-1, 1], n ≥ 1, following the previous ones.
            state: after the previous samples; None where an utterance begins.

        Returns:
            n probabilities of speech, and the state after them.
        """
        zeros = torch.zeros(1, 1, WIDTH)
        hidden, cell, context = state or (zeros, zeros, torch.zeros(CONTEXT_SAMPLES))
        heard = torch.cat([context, samples])
        windows = heard.unfold(0, CONTEXT_SAMPLES + SPEECH_WINDOW_SAMPLES, SPEECH_WINDOW_SAMPLES)
        shapes = self.convolutions(self._spectrum(windows))
        # [n, 128, 1] after two strides: the windows are the LSTM's time axis.
        sequence, (hidden, cell) = self.lstm(shapes.transpose(1, 2), (hidden, cell))
        probabilities = self.output(sequence.relu()).sigmoid().flatten()
        context = heard[-CONTEXT_SAMPLES:].clone()
        return probabilities.tolist(), (hidden, cell, context)

    def _spectrum(self, windows: torch.Tensor) -> torch.Tensor:
        """[n, 576] samples → [n, 129, 4] magnitudes."""
        padded = functional.pad(windows, (0, CONTEXT_SAMPLES), mode="reflect")
        parts = self.stft(padded.unfold(1, STFT_LENGTH, STFT_SHIFT))
        real, imaginary = parts[..., :STFT_BINS], parts[..., STFT_BINS:]
        magnitudes: torch.Tensor = (real.square() + imaginary.square()).sqrt()
        return magnitudes.transpose(1, 2)


def speech_stream(detector: SpeechDetector) -> Callable[[NDArray[np.float32]], list[float]]:
    """Open the detector on one utterance; a tail shorter than a window waits for more."""
    state: DetectorState | None = None
    waiting = torch.empty(0)

    def accept(samples: NDArray[np.float32]) -> list[float]:
        """Judge the windows that the next [n] float32 samples at 16 kHz in [-1, 1] complete."""
        nonlocal state, waiting
        heard = torch.cat([waiting, torch.from_numpy(samples)])
        whole = len(heard) // SPEECH_WINDOW_SAMPLES * SPEECH_WINDOW_SAMPLES
        waiting = heard[whole:].clone()
        if not whole:
            return []
        probabilities: list[float]
        probabilities, state = detector(heard[:whole], state)
        return probabilities

    return accept


def load_speech_detector() -> SpeechDetector:
    """Load the weights that the `silero-vad` distribution brings.

    The package itself is not imported: its import sets torch's threads for the whole process. Its
    TorchScript file is read, since its `.safetensors` file holds the tensors of another model; only
    the tensors are taken, since running it costs several times as much.
    """
    path = weights_path()
    try:
        stored = torch.jit.load(path, map_location="cpu").state_dict()  # type: ignore[no-untyped-call]
        detector = SpeechDetector()
        # Two of our linear layers are stored as convolutions with an axis of length 1.
        detector.load_state_dict(
            {
                name: stored[_NAMES[name]].reshape(tensor.shape)
                for name, tensor in detector.state_dict().items()
            }
        )
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        raise ModelError(
            f"{WEIGHTS_FILE} of {WEIGHTS_PACKAGE} does not hold this network: {error}"
        ) from error
    return detector.eval().requires_grad_(requires_grad=False)


def weights_path() -> Path:
    found = importlib.util.find_spec(WEIGHTS_PACKAGE)
    folders = found.submodule_search_locations if found else None
    path = Path(folders[0]) / WEIGHTS_FILE if folders else None
    if path is None or not path.is_file():
        raise ModelError(
            f"{WEIGHTS_FILE} is missing; install the distribution silero-vad (6.2 or later)"
        )
    return path


_NAMES = {
    "stft.weight": "_model.stft.forward_basis_buffer",
    "lstm.weight_ih_l0": "_model.decoder.rnn.weight_ih",
    "lstm.weight_hh_l0": "_model.decoder.rnn.weight_hh",
    "lstm.bias_ih_l0": "_model.decoder.rnn.bias_ih",
    "lstm.bias_hh_l0": "_model.decoder.rnn.bias_hh",
    "output.weight": "_model.decoder.decoder.2.weight",
    "output.bias": "_model.decoder.decoder.2.bias",
} | {
    f"convolutions.{2 * layer}.{part}": f"_model.encoder.{layer}.reparam_conv.{part}"
    for layer in range(4)
    for part in ("weight", "bias")
}
