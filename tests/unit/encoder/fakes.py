"""A network without weights: what it says can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from earvoice.encoder.audio_format import Samples
from earvoice.encoder.label_kind import LabelKind
from earvoice.encoder.network import Encoding
from earvoice.runtime.model_facts import ModelFacts

BLANK = 4
FACTS = ModelFacts(
    name="fake",
    hash="c0ffee",
    version="1",
    source_language="en",
    target_languages=("de",),
    decoder_layers=4,
    parameter_count=0,
    computes_in_bfloat16=False,
    default_policy="edatt",
    default_alpha=0.2,
    default_lambda_states=2,
    default_attention_layer=2,
    default_frames=4,
    default_segment_ms=800,
)


class FakeFeatures:
    """A frame every 160 samples once 400 are there: the mean of its first 160 samples."""

    def __init__(self) -> None:
        self._waiting = np.zeros(0, np.float32)

    def accept(self, samples: Samples) -> Samples:
        heard = np.concatenate([self._waiting, samples])
        count = FakeNetwork.feature_frame_count(len(heard))
        self._waiting = heard[count * 160 :]
        return heard[: count * 160].reshape(count, 160).mean(axis=1, keepdims=True)


class FakeJudge:
    """Speech is a window whose loudest sample is at least 0.5."""

    def __init__(self) -> None:
        self._waiting = np.zeros(0, np.float32)

    def accept(self, samples: Samples) -> list[float]:
        heard = np.concatenate([self._waiting, samples])
        count = len(heard) // 512
        self._waiting = heard[count * 512 :]
        windows = heard[: count * 512].reshape(count, 512)
        return [float(peak >= 0.5) for peak in np.abs(windows).max(axis=1)]


class FakeNetwork:
    """One state for every 4 feature frames; its label is 0, 1, 2, 3, 0, ... and last a blank."""

    facts = FACTS
    blank = BLANK
    dimension = 1
    feature_bins = 1
    encoder_frame_ms = 40
    label_kinds: Sequence[LabelKind] = (
        LabelKind.START,
        LabelKind.INNER,
        LabelKind.START,
        LabelKind.SILENT,
        LabelKind.SILENT,
    )

    def __init__(self) -> None:
        self.encoded_frames: list[int] = []

    def open_features(self) -> FakeFeatures:
        return FakeFeatures()

    @staticmethod
    def feature_frame_count(sample_count: int) -> int:
        return max(0, (sample_count - 240) // 160)

    def open_judge(self) -> FakeJudge:
        return FakeJudge()

    def encode(self, features: Samples) -> Encoding:
        self.encoded_frames.append(len(features))
        states = features[::4]
        labels = (*(index % 4 for index in range(len(states) - 1)), BLANK)
        return Encoding(
            states=states.astype("<f4").tobytes(),
            labels=labels,
            run_lengths=(1,) * len(states),
            frame_labels=labels,
        )

    def transcribe(self, labels: Sequence[int]) -> str:
        return " ".join(str(label) for label in labels)
