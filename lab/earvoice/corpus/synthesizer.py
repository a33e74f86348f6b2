"""What the synthesisers share: loudness, rate, errors."""

from __future__ import annotations

import numpy as np
import soxr
from numpy.typing import NDArray

from earvoice.corpus.sound import SAMPLE_RATE_HZ
from earvoice.corpus.voice import Voice

ESPEAK_WORDS_PER_MINUTE = 175
_TARGET_RMS = 0.05
_SILENT_RMS = 1e-5


class SynthesisError(RuntimeError):
    """An engine gave no audio for a sentence; others may be said."""


class MissingEngineError(RuntimeError):
    """An engine is not installed: without it a corpus would lack every sentence that it says."""


def level(samples: NDArray[np.float32], rate_hz: float, voice: Voice) -> NDArray[np.int16]:
    """Resample [samples] to 16 kHz, `voice.speed` times faster, and level the loudness.

    Raises:
        SynthesisError: the sound is all silence.
    """
    samples = soxr.resample(samples, rate_hz * voice.speed, SAMPLE_RATE_HZ, quality="HQ")
    rms = float(np.sqrt(np.mean(np.square(samples)))) if samples.size else 0.0
    if rms < _SILENT_RMS:
        message = f"{voice.engine} voice {voice.name!r} gave silence"
        raise SynthesisError(message)
    levelled = np.clip(samples * (_TARGET_RMS / rms), -1.0, 1.0)
    return np.asarray(np.round(levelled * 32_767), dtype=np.int16)
