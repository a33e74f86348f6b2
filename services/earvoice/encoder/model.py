"""The model that is served: a checkpoint's encoder on its device, and the speech detector."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import torch

from earvoice.encoder.audio_format import Samples
from earvoice.encoder.label_kind import LabelKind
from earvoice.encoder.network import Encoding, Network
from earvoice.encoder.settings import EncoderSettings
from earvoice.encoder.speech_detector import SpeechDetector, SpeechStream, load_speech_detector
from earvoice.models.checkpoint import Checkpoint, load_checkpoint
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.device import chosen_device
from earvoice.models.frontend import FeatureStream, Filterbank, frame_count
from earvoice.models.precision import chosen_dtype
from earvoice.models.vocabulary import Vocabulary
from earvoice.models.wrapped.directory import is_wrapped, require_transformers

WARM_UP_SECONDS = (1, 3, 5)

_LOG = logging.getLogger("earvoice.encoder.model")


class Features:
    """A checkpoint's feature stream, as arrays."""

    def __init__(self, stream: FeatureStream) -> None:
        self._stream = stream

    def accept(self, samples: Samples) -> Samples:
        """Take [n] samples at 16 kHz, give the [frames, 80] float32 that they complete."""
        frames: Samples = self._stream.accept(samples).numpy()
        return frames


class EncoderModel:
    """`earvoice.encoder.network.Network`, computed by torch.

    Args:
        checkpoint: the model; only its encoder is kept.
        detector: the speech detector, on the CPU.
        device: where the checkpoint's network is.
        name: to serve it by; empty takes the checkpoint's own.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        detector: SpeechDetector,
        *,
        device: torch.device,
        name: str = "",
    ) -> None:
        config = checkpoint.config
        self.facts = checkpoint.facts(name)
        self.blank = config.blank
        self.dimension = config.encoder.d_model
        self.feature_bins = config.mel_bins
        self.encoder_frame_ms = config.encoder.frame_shift_ms
        self._vocabulary = checkpoint.source_vocabulary
        self.label_kinds = [
            _label_kind(self._vocabulary, label) for label in range(len(self._vocabulary))
        ]
        self._encoder = checkpoint.network.encoder
        self._device = device
        self._filterbank = Filterbank()
        self._normalisation = checkpoint.normalisation
        self._detector = detector

    def open_features(self) -> Features:
        """Features of a fresh utterance."""
        return Features(FeatureStream(self._filterbank, self._normalisation))

    def feature_frame_count(self, sample_count: int) -> int:
        """Feature frames in this many samples at 16 kHz."""
        return frame_count(sample_count)

    def open_judge(self) -> SpeechStream:
        """The speech detector of a fresh utterance."""
        return SpeechStream(self._detector)

    def encode(self, features: Samples) -> Encoding:
        """Encode [frames, 80] float32 features, frames ≥ 1."""
        output = self._encoder.encode(torch.from_numpy(features).to(self._device))
        return Encoding(
            states=output.states.float().cpu().numpy().astype("<f4", copy=False).tobytes(),
            labels=tuple(output.labels.tolist()),
            run_lengths=tuple(output.run_lengths.tolist()),
            frame_labels=tuple(output.frame_labels.tolist()),
        )

    def transcribe(self, labels: Sequence[int]) -> str:
        """The text of a row of labels without blanks and repeats."""
        return self._vocabulary.decode(labels)

    def warm_up(self) -> None:
        """Compute on silence, so that the first session does not wait for one-time work."""
        for seconds in WARM_UP_SECONDS:
            silence = np.zeros(seconds * SAMPLE_RATE_HZ, np.float32)
            self.open_judge().accept(silence)
            self.encode(self.open_features().accept(silence))


def _label_kind(vocabulary: Vocabulary, label: int) -> LabelKind:
    if vocabulary.is_silent(label):
        return LabelKind.SILENT
    if not vocabulary.starts_word(label):
        return LabelKind.INNER
    return LabelKind.START if vocabulary.text(label).strip() else LabelKind.BORDER


def load_model(settings: EncoderSettings) -> Network:
    """Load what the settings name: a checkpoint of our own, of the papers or of another family.

    Raises:
        ModelError: the checkpoint is not usable.
        SpeechDetectorError: the speech detector's weights are missing.
        DeviceError: there is no such device.
    """
    torch.set_num_threads(settings.torch_threads)
    device = chosen_device(settings.device)
    if is_wrapped(settings.model_path):
        return _load_wrapped(settings, device)
    checkpoint = load_checkpoint(
        settings.model_path,
        precision=settings.precision,
        device=device,
        source_language=settings.source_language,
        target_language=settings.target_language,
        compression=None if settings.compression == "checkpoint" else settings.compression,
    )
    detector = load_speech_detector()
    model = EncoderModel(checkpoint, detector, device=device, name=settings.model_name)
    model.warm_up()
    _LOG.info(
        "model loaded",
        extra={
            "model": model.facts.name,
            "hash": model.facts.hash,
            "device": str(device),
            "dtype": str(checkpoint.dtype),
        },
    )
    return model


def _load_wrapped(settings: EncoderSettings, device: torch.device) -> Network:
    require_transformers()
    from earvoice.encoder.wrapped_network import (  # noqa: PLC0415 - imports transformers
        WrappedNetwork,
        check_utterance_limit,
    )
    from earvoice.models.wrapped.loading import load_wrapped  # noqa: PLC0415 - the same

    model = load_wrapped(
        settings.model_path,
        dtype=chosen_dtype(settings.precision, device, bears_bfloat16=False),
        device=device,
        source_language=settings.source_language,
        target_language=settings.target_language,
        compression=settings.compression,
        name=settings.model_name,
    )
    check_utterance_limit(model, settings)
    network = WrappedNetwork(model, load_speech_detector())
    network.warm_up()
    _LOG.info("model loaded", extra={"model": model.facts.name, "hash": model.facts.hash})
    return network
