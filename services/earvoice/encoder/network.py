"""What a session needs of a model; the real one is in `model`, tests bring their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from earvoice.encoder.audio_format import Samples
from earvoice.encoder.label_kind import LabelKind
from earvoice.runtime.model_facts import ModelFacts


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The encoder's output for one utterance."""

    states: bytes
    """state_count x dimension float32 values, row-major, little-endian."""
    labels: tuple[int, ...]
    """CTC label of each state; none where the model has no CTC head."""
    run_lengths: tuple[int, ...]
    """Encoder frames behind each state."""
    frame_labels: tuple[int, ...]
    """Greedy CTC label of every encoder frame; none where the model has no CTC head."""


NO_STATES = Encoding(b"", (), (), ())


class FeatureExtractor(Protocol):
    """Features of one utterance, computed as its sound arrives."""

    def accept(self, samples: Samples) -> Samples:
        """Take [n] samples at 16 kHz, give the [frames, bins] float32 that they complete."""


class SpeechJudge(Protocol):
    """Speech probabilities of one utterance, computed as its sound arrives."""

    def accept(self, samples: Samples) -> list[float]:
        """Take [n] samples at 16 kHz, give a probability for each window they complete."""


class Network(Protocol):
    """A loaded encoder with its features, its speech detector and its source vocabulary."""

    facts: ModelFacts
    blank: int
    """The CTC label that means blank."""
    dimension: int
    """Values of one state."""
    feature_bins: int
    """Values of one feature frame."""
    encoder_frame_ms: int
    """Milliseconds between two encoder frames."""

    @property
    def label_kinds(self) -> Sequence[LabelKind]:
        """By CTC label: what it does to the words of the transcript."""

    def open_features(self) -> FeatureExtractor:
        """Features of a fresh utterance."""

    def feature_frame_count(self, sample_count: int) -> int:
        """Feature frames in this many samples at 16 kHz."""

    def open_judge(self) -> SpeechJudge:
        """The speech detector of a fresh utterance."""

    def encode(self, features: Samples) -> Encoding:
        """Encode [frames, bins] float32, frames ≥ 1."""

    def transcribe(self, labels: Sequence[int]) -> str:
        """The text of a row of labels without blanks and repeats."""
