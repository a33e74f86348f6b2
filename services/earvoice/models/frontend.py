"""From sound to features: Kaldi's log-mel filterbank, computed as the sound arrives."""

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol, Self

import numpy as np
import torch
from torch.nn import functional

from earvoice.models.config import FRAME_SHIFT_SAMPLES, SAMPLE_RATE_HZ
from earvoice.models.errors import CheckpointError, ModelError

WINDOW_SAMPLES = 25 * SAMPLE_RATE_HZ // 1000
FFT_SAMPLES = 512
"""The next power of two after the window."""
MEL_BINS = 80
LOW_HZ = 20.0
PRE_EMPHASIS = 0.97
POVEY_EXPONENT = 0.85
INT16_SCALE = 32768.0
"""Kaldi's filterbank takes 16-bit integers; our sound is in [-1, 1]."""


def frame_count(samples: int, lead_samples: int = 0) -> int:
    """Whole analysis windows in `samples` samples at 16 kHz: ⌊(n - 240) / 160⌋, at least 0.

    With `lead_samples` windows begin that much earlier; that many samples or fewer have none.
    """
    if samples <= lead_samples:
        return 0
    return max(0, (samples + lead_samples - WINDOW_SAMPLES) // FRAME_SHIFT_SAMPLES + 1)


class Analysis(Protocol):
    """From sound to features, frame by frame, FRAME_SHIFT_SAMPLES apart."""

    lead_samples: int
    """A window begins this many samples before its frame; the sound is mirrored at its start."""
    scale: float
    """Factor that sound in [-1, 1] is multiplied by."""

    def __call__(self, samples: torch.Tensor) -> torch.Tensor:
        """[n] float32, scaled → [whole windows, mel] float32."""


class Filterbank:
    """Kaldi's 80-bin log-mel filterbank: povey window, pre-emphasis 0.97, no dither."""

    lead_samples = 0
    scale = INT16_SCALE

    def __init__(self) -> None:
        self._window = torch.hann_window(WINDOW_SAMPLES, periodic=False).pow(POVEY_EXPONENT)
        self._mel = mel_weights()
        self._floor = torch.finfo(torch.float32).eps

    def __call__(self, samples: torch.Tensor) -> torch.Tensor:
        """Analyse every whole window.

        Args:
            samples: [n] float32 sound at 16 kHz on the scale of 16-bit integers.

        Returns:
            [⌊(n - 240) / 160⌋, 80] float32 natural logarithms of mel energies.
        """
        if frame_count(samples.shape[0]) == 0:
            return samples.new_empty(0, MEL_BINS)
        frames = samples.unfold(0, WINDOW_SAMPLES, FRAME_SHIFT_SAMPLES)
        frames = frames - frames.mean(1, keepdim=True)
        before = functional.pad(frames[:, None], (1, 0), mode="replicate")[:, 0, :-1]
        windowed = (frames - PRE_EMPHASIS * before) * self._window
        spectrum = torch.fft.rfft(functional.pad(windowed, (0, FFT_SAMPLES - WINDOW_SAMPLES)))
        energies: torch.Tensor = spectrum.abs().pow(2.0) @ self._mel
        return torch.log(energies.clamp(min=self._floor))


def _mel(hertz: torch.Tensor) -> torch.Tensor:
    return 1127.0 * (1.0 + hertz / 700.0).log()


def mel_weights() -> torch.Tensor:
    """[257, 80] float32 triangular weights of each FFT bin, equally spaced in mel."""
    low, high = (1127.0 * math.log(1.0 + hz / 700.0) for hz in (LOW_HZ, SAMPLE_RATE_HZ / 2))
    step = (high - low) / (MEL_BINS + 1)
    left = low + torch.arange(MEL_BINS)[:, None] * step
    centre = low + (torch.arange(MEL_BINS)[:, None] + 1.0) * step
    right = low + (torch.arange(MEL_BINS)[:, None] + 2.0) * step
    bins = _mel(SAMPLE_RATE_HZ / FFT_SAMPLES * torch.arange(FFT_SAMPLES // 2))[None]
    slopes = torch.min((bins - left) / (centre - left), (right - bins) / (right - centre))
    return functional.pad(slopes.clamp(min=0.0), (0, 1)).T.contiguous()


@dataclasses.dataclass(frozen=True)
class FeatureNormalisation:
    """Global cepstral mean and variance normalisation: (x - mean) / deviation, bin by bin."""

    mean: torch.Tensor
    """[80] float32."""
    deviation: torch.Tensor
    """[80] float32, positive."""

    def __post_init__(self) -> None:
        for name, value in (("mean", self.mean), ("deviation", self.deviation)):
            if value.shape != (MEL_BINS,) or not bool(torch.isfinite(value).all()):
                message = f"normalisation {name} has shape {tuple(value.shape)}; allowed: [80]"
                raise CheckpointError(f"{message} finite numbers")
        if bool((self.deviation <= 0).any()):
            message = f"normalisation deviation is {float(self.deviation.min())}; allowed: above 0"
            raise CheckpointError(message)

    @classmethod
    def identity(cls) -> Self:
        return cls(torch.zeros(MEL_BINS), torch.ones(MEL_BINS))

    def __call__(self, features: torch.Tensor) -> torch.Tensor:
        """[T, 80] → [T, 80] float32."""
        return (features - self.mean) / self.deviation


FeatureStream = Callable[[np.ndarray], torch.Tensor]
"""From the next [n] float32 samples at 16 kHz in [-1, 1] to the [frames, 80] float32 normalised
frames that they complete, perhaps none."""


def feature_stream(analysis: Analysis, normalisation: FeatureNormalisation) -> FeatureStream:
    """Open the normalised features of one utterance, computed as its sound arrives.

    The frames do not depend on how the sound is cut (to 2e-6); a tail shorter than a window waits.
    """
    waiting, mirrored = torch.empty(0), analysis.lead_samples

    def accept(samples: np.ndarray) -> torch.Tensor:
        nonlocal waiting, mirrored
        if samples.dtype != np.float32 or samples.ndim != 1:
            message = f"samples are {samples.dtype}{samples.shape}; allowed: float32 of one axis"
            raise ModelError(message)
        if not np.isfinite(samples).all():
            raise ModelError("samples hold NaN or infinity; allowed: finite numbers")
        sound = torch.cat((waiting, torch.from_numpy(samples) * analysis.scale))
        lead = mirrored
        if lead and len(sound) > lead:
            sound = torch.cat((sound[1 : lead + 1].flip(0), sound))
            mirrored = lead = 0
        frames = 0 if lead else frame_count(len(sound))
        waiting = sound[frames * FRAME_SHIFT_SAMPLES :].clone()
        if not frames:
            return torch.empty(0, MEL_BINS)
        return normalisation(analysis(sound))

    return accept
