"""The served model: an encoder on its device, voice-activity detection, and what both cost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.encoder.audio import Samples
from earvoice.encoder.network import NO_STATES, Encoding, LabelKind, Network
from earvoice.encoder.settings import EncoderSettings
from earvoice.encoder.text import TextNetwork
from earvoice.models.checkpoint import Checkpoint
from earvoice.models.config import FRAME_SHIFT_SAMPLES, SAMPLE_RATE_HZ
from earvoice.models.ctc import Encoded, likeliest_labels
from earvoice.models.errors import ModelError
from earvoice.models.frontend import feature_stream, frame_count
from earvoice.models.serving import load_served
from earvoice.models.speech_detector import SpeechDetector, load_speech_detector, speech_stream
from earvoice.models.text import source_pieces
from earvoice.models.vocabulary import Vocabulary
from earvoice.runtime.audio_format import WORDS_PER_SECOND
from earvoice.runtime.session_limit import SegmentCost

if TYPE_CHECKING:
    from earvoice.models.wrapped.loading import WrappedModel  # imports transformers

WARM_UP_SECONDS = (1, 3, 5)
NO_LABEL = -1

PREFIX_S = 10
"""Least length of the utterance that a segment is measured in: half of one cut after 20 s."""
PASSES = 3
TIME_LIMIT_S = 1.5

_LOG = logging.getLogger("earvoice.encoder.model")


class EncoderModel:
    """`earvoice.encoder.network.Network`, computed by torch.

    Args:
        name: name to serve it under; empty takes the checkpoint's own.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        detector: SpeechDetector,
        *,
        name: str = "",
    ) -> None:
        config = checkpoint.config
        self.description = checkpoint.describe(name)
        self.blank = config.blank
        self.dimension = config.encoder.d_model
        self.feature_bins = config.mel_bins
        self.encoder_frame_ms = config.encoder.frame_shift_ms
        self._compresses = config.encoder.compression != "none"
        self._vocabulary = checkpoint.source_vocabulary
        self.label_kinds = [
            _label_kind(self._vocabulary, label) for label in range(len(self._vocabulary))
        ]
        self._encoder = checkpoint.network.encoder
        self._analysis = checkpoint.family.open_analysis()
        self.feature_context_frames = -(-self._analysis.lead_samples // FRAME_SHIFT_SAMPLES)
        self._normalisation = checkpoint.normalisation
        self._detector = detector

    def open_features(self) -> Callable[[Samples], Samples]:
        features_of = feature_stream(self._analysis, self._normalisation)
        return lambda samples: features_of(samples).numpy()

    def feature_frame_count(self, sample_count: int) -> int:
        return frame_count(sample_count, self._analysis.lead_samples)

    def open_voice_activity(self) -> Callable[[Samples], list[float]]:
        return speech_stream(self._detector)

    def encode(self, features: Samples) -> Encoding:
        return self._encoding(self._encoder.encode(torch.from_numpy(features)), is_whole=True)

    def open_encoding(self) -> Callable[[Samples], Encoding]:
        encode_growing = self._encoder.open_utterance()

        def encode(features: Samples) -> Encoding:
            encoded, is_whole = encode_growing(torch.from_numpy(features))
            return self._encoding(encoded, is_whole=is_whole)

        return encode

    def transcribe(self, labels: Sequence[int]) -> str:
        return self._vocabulary.decode(labels)

    def _encoding(self, encoded: Encoded, *, is_whole: bool) -> Encoding:
        labels, frame_labels = encoded.labels.tolist(), encoded.frame_labels.tolist()
        # As long as some is kept, greedy labels cost less; compressed states are runs of them.
        if is_whole and not self._compresses:
            labels = frame_labels = likeliest_labels(encoded.ctc_log_probs.cpu())
        return Encoding(
            states=encoded.states.float().cpu().numpy().astype("<f4", copy=False).tobytes(),
            labels=tuple(labels),
            run_lengths=tuple(encoded.run_lengths.tolist()),
            frame_labels=tuple(frame_labels),
            is_whole=is_whole,
        )


def _label_kind(vocabulary: Vocabulary, label: int) -> LabelKind:
    if vocabulary.is_silent(label):
        return LabelKind.SILENT
    if not vocabulary.starts_word(label):
        return LabelKind.INNER
    return LabelKind.START if vocabulary.text(label).strip() else LabelKind.BORDER


class TextModel:
    """`earvoice.encoder.text.TextNetwork`, computed by torch."""

    def __init__(self, checkpoint: Checkpoint, *, device: torch.device, name: str = "") -> None:
        self.description = checkpoint.describe(name)
        self.dimension = checkpoint.config.encoder.d_model
        self._vocabulary = checkpoint.source_vocabulary
        self._encoder = checkpoint.network.encoder
        self._device = device

    def encode_words(self, words: tuple[str, ...], *, ended: bool) -> tuple[bytes, tuple[int, ...]]:
        pieces, places = source_pieces(words, self._vocabulary, ended=ended)
        if not pieces:
            return b"", ()
        output = self._encoder.encode(torch.tensor(pieces, device=self._device)[:, None])
        states = output.states.float().cpu().numpy().astype("<f4", copy=False)
        return states.tobytes(), tuple(places)


class WrappedNetwork:
    """The encoder of another family: no labels, and one state for each encoder frame."""

    blank = NO_LABEL
    feature_bins = FRAME_SHIFT_SAMPLES
    feature_context_frames = 0
    label_kinds: Sequence[LabelKind] = ()

    def __init__(self, model: WrappedModel, detector: SpeechDetector) -> None:
        self.description = model.description
        self.dimension = model.encoder.dimension
        self.encoder_frame_ms = model.encoder.state_samples * 1000 // SAMPLE_RATE_HZ
        self._encoder = model.encoder
        self._detector = detector

    def open_features(self) -> Callable[[Samples], Samples]:
        """Give sound itself in frames of 10 ms: the family makes its own features."""
        waiting = np.empty(0, np.float32)

        def frames_of(samples: Samples) -> Samples:
            nonlocal waiting
            sound = np.concatenate([waiting, samples])
            count = len(sound) // FRAME_SHIFT_SAMPLES
            waiting = sound[count * FRAME_SHIFT_SAMPLES :]
            return sound[: count * FRAME_SHIFT_SAMPLES].reshape(count, FRAME_SHIFT_SAMPLES)

        return frames_of

    def feature_frame_count(self, sample_count: int) -> int:
        return sample_count // FRAME_SHIFT_SAMPLES

    def open_voice_activity(self) -> Callable[[Samples], list[float]]:
        return speech_stream(self._detector)

    def encode(self, features: Samples) -> Encoding:
        """Encode [frames, 160] float32 samples, frames ≥ 1; too few give no states."""
        states = self._encoder.states(features.reshape(-1))
        if not len(states):
            return NO_STATES
        data = states.cpu().numpy().astype("<f4", copy=False).tobytes()
        return Encoding(data, labels=(), run_lengths=(1,) * len(states), frame_labels=())

    def open_encoding(self) -> Callable[[Samples], Encoding]:
        return self.encode

    def transcribe(self, labels: Sequence[int]) -> str:
        del labels
        return ""


def load_model(settings: EncoderSettings) -> Network | TextNetwork:
    """Load what the settings name: our own checkpoint, the papers' or another family's."""
    loaded, device = load_served(settings, without="decoder")
    network: Network | TextNetwork
    computed: dict[str, str] = {}
    if isinstance(loaded, Checkpoint):
        name = settings.model_name
        if loaded.family.reads_words:
            network = TextModel(loaded, device=device, name=name)
        else:
            network = EncoderModel(loaded, load_speech_detector(), name=name)
        computed = {"device": str(device), "dtype": str(loaded.dtype)}
    else:
        check_utterance_limit(loaded, settings)
        network = WrappedNetwork(loaded, load_speech_detector())
    _warm_up(network)
    served = {"model": network.description.name, "hash": network.description.hash}
    _LOG.info("model loaded", extra=served | computed)
    return network


def check_utterance_limit(model: WrappedModel, settings: EncoderSettings) -> None:
    maximum = model.encoder.maximum_samples
    if maximum is not None and settings.max_utterance_ms * SAMPLE_RATE_HZ // 1000 > maximum:
        raise ModelError(
            f"EARVOICE_ENCODER_MAX_UTTERANCE_MS is {settings.max_utterance_ms}; "
            f"allowed with {model.description.name}: at most {maximum * 1000 // SAMPLE_RATE_HZ}"
        )


def _warm_up(network: Network | TextNetwork) -> None:
    """Encode dummy inputs, so that the first session does not wait for one-time work."""
    for seconds in WARM_UP_SECONDS:
        if isinstance(network, TextNetwork):
            network.encode_words(("a",) * seconds * WORDS_PER_SECOND, ended=False)
            continue
        silence = np.zeros(seconds * SAMPLE_RATE_HZ, np.float32)
        network.open_voice_activity()(silence)
        network.encode(network.open_features()(silence))


def measure_segment_cost(
    network: Network | TextNetwork, clock_s: Callable[[], float]
) -> SegmentCost:
    """Encode an utterance of noise as often as there is time for; the fastest pass counts.

    Other load can only slow a pass down. A segment is charged its share of the final pass over the
    whole utterance.
    """
    began_s = clock_s()
    passes_s = [_pass_s(network, clock_s)]
    while len(passes_s) < PASSES and clock_s() - began_s < TIME_LIMIT_S:
        passes_s.append(_pass_s(network, clock_s))
    return min(passes_s), 0.0


def _pass_s(network: Network | TextNetwork, clock_s: Callable[[], float]) -> float:
    if isinstance(network, TextNetwork):
        began_s = clock_s()
        network.encode_words(("a",) * PREFIX_S * WORDS_PER_SECOND, ended=False)
        return clock_s() - began_s
    segment = network.description.default_segment_ms * SAMPLE_RATE_HZ // 1000
    # Whole segments, as in a live utterance: in between, a growing one is passed over twice.
    length = max(2, -(-PREFIX_S * SAMPLE_RATE_HZ // segment)) * segment
    noise = np.random.default_rng(0).normal(0, 0.1, length).astype(np.float32)
    features_of, speech_in = network.open_features(), network.open_voice_activity()
    encode = network.open_encoding()
    earlier = features_of(noise[:-segment])
    speech_in(noise[:-segment])
    encode(earlier)
    began_s = clock_s()
    speech_in(noise[-segment:])
    features = np.concatenate([earlier, features_of(noise[-segment:])])
    encode(features)
    encoded_s = clock_s()
    network.encode(features)
    return encoded_s - began_s + (clock_s() - encoded_s) * segment / len(noise)
