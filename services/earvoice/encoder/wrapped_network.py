"""A model of another family as the encoder service's network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from earvoice.encoder.audio_format import Samples
from earvoice.encoder.label_kind import LabelKind
from earvoice.encoder.network import NO_STATES, Encoding
from earvoice.encoder.settings import EncoderSettings
from earvoice.encoder.speech_detector import SpeechDetector, SpeechStream
from earvoice.encoder.utterance import FRAME_SHIFT_SAMPLES
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.errors import ModelConfigError
from earvoice.models.wrapped.loading import WrappedModel

NO_LABEL = -1
WARM_UP_SECONDS = (1, 3)


class SoundFrames:
    """Sound itself in frames of 10 ms; a shorter tail waits. The family makes its own features."""

    def __init__(self) -> None:
        self._waiting = np.empty(0, np.float32)

    def accept(self, samples: Samples) -> Samples:
        """Take [n] samples at 16 kHz, give the [frames, 160] that they complete."""
        sound = np.concatenate([self._waiting, samples])
        count = len(sound) // FRAME_SHIFT_SAMPLES
        self._waiting = sound[count * FRAME_SHIFT_SAMPLES :]
        return sound[: count * FRAME_SHIFT_SAMPLES].reshape(count, FRAME_SHIFT_SAMPLES)


class WrappedNetwork:
    """`earvoice.encoder.network.Network`; there are no labels, and one state an encoder frame.

    Args:
        model: the model; its encoder is used.
        detector: the speech detector, on the CPU.
    """

    blank = NO_LABEL
    feature_bins = FRAME_SHIFT_SAMPLES
    label_kinds: Sequence[LabelKind] = ()

    def __init__(self, model: WrappedModel, detector: SpeechDetector) -> None:
        self.facts = model.facts
        self.dimension = model.hearing.dimension
        self.encoder_frame_ms = model.hearing.state_samples * 1000 // SAMPLE_RATE_HZ
        self._hearing = model.hearing
        self._detector = detector

    def open_features(self) -> SoundFrames:
        """Frames of a fresh utterance."""
        return SoundFrames()

    def feature_frame_count(self, sample_count: int) -> int:
        """Whole frames in this many samples at 16 kHz."""
        return sample_count // FRAME_SHIFT_SAMPLES

    def open_judge(self) -> SpeechStream:
        """The speech detector of a fresh utterance."""
        return SpeechStream(self._detector)

    def encode(self, features: Samples) -> Encoding:
        """Encode [frames, 160] float32 samples, frames ≥ 1; too few give no states."""
        states = self._hearing.states(features.reshape(-1))
        if not len(states):
            return NO_STATES
        data = states.cpu().numpy().astype("<f4", copy=False).tobytes()
        return Encoding(data, labels=(), run_lengths=(1,) * len(states), frame_labels=())

    def transcribe(self, labels: Sequence[int]) -> str:
        """Nothing: there are no labels to read."""
        del labels
        return ""

    def warm_up(self) -> None:
        """Compute on silence, so that the first session does not wait for one-time work."""
        for seconds in WARM_UP_SECONDS:
            silence = np.zeros(seconds * SAMPLE_RATE_HZ, np.float32)
            self.open_judge().accept(silence)
            self.encode(self.open_features().accept(silence))


def check_utterance_limit(model: WrappedModel, settings: EncoderSettings) -> None:
    """Refuse a limit on utterances that the encoder cannot keep.

    Raises:
        ModelConfigError: utterances may be longer than the encoder takes.
    """
    maximum = model.hearing.maximum_samples
    if maximum is not None and settings.max_utterance_ms * SAMPLE_RATE_HZ // 1000 > maximum:
        message = (
            f"EARVOICE_ENCODER_MAX_UTTERANCE_MS is {settings.max_utterance_ms}; "
            f"allowed with {model.facts.name}: {maximum * 1000 // SAMPLE_RATE_HZ}"
        )
        raise ModelConfigError(message)
