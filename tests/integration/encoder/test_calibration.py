"""What a segment costs the encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from earvoice.api.v1 import types_pb2
from earvoice.encoder.audio import Samples
from earvoice.encoder.model import PASSES, TIME_LIMIT_S, EncoderModel, measure_segment_cost
from earvoice.encoder.network import Encoding
from earvoice.models.config import SAMPLE_RATE_HZ

pytestmark = pytest.mark.torch

SEGMENTS = 13
"""Of 800 ms, the first that reach 10 s."""


def clock_of(passes_s: list[float], whole_s: float = 0.0) -> Callable[[], float]:
    """A clock for segments that take so long, and whole utterances.

    It is read before all; before each pass, after its segment, after its utterance, and between.
    """
    times_s = [0.0]
    for pass_s in passes_s:
        now_s = times_s[-1]
        end_s = now_s + pass_s + whole_s
        times_s += [now_s, now_s + pass_s, end_s, end_s]
    readings_s = iter(times_s)
    return lambda: next(readings_s)


def test_the_fastest_of_some_passes_counts(model):
    """What else the machine does only slows one down."""
    passes_s = [0.5, 0.125, 0.25]
    assert len(passes_s) == PASSES
    assert measure_segment_cost(model, clock_of(passes_s)) == (0.125, 0.0)


def test_a_segment_bears_its_share_of_the_whole_utterance(model):
    """Which is heard once more when it has ended."""
    cost_s, _ = measure_segment_cost(model, clock_of([0.5] * PASSES, whole_s=0.25))
    assert cost_s == pytest.approx(0.5 + 0.25 / SEGMENTS)


class NotingModel:
    """A model that notes the frames of growing utterances."""

    def __init__(self, model: EncoderModel) -> None:
        self._model = model
        self.description = model.description
        self.encoded_frames: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def open_encoding(self) -> Callable[[Samples], Encoding]:
        encode = self._model.open_encoding()

        def noted(features: Samples) -> Encoding:
            self.encoded_frames.append(len(features))
            return encode(features)

        return noted


def test_the_utterance_is_cut_as_a_live_one_is(model):
    """Whole segments: a segment between two of them may take a model that keeps states longer."""
    noting, segment = NotingModel(model), model.description.default_segment_ms * 16
    measure_segment_cost(noting, clock_of([TIME_LIMIT_S]))
    ends = (SEGMENTS - 1) * segment, SEGMENTS * segment
    assert noting.encoded_frames == [model.feature_frame_count(end) for end in ends]


def test_a_segment_as_long_as_the_utterance_has_one_before_it(model):
    """What is measured is how an utterance grows."""
    description = types_pb2.ModelDescription()
    description.CopyFrom(model.description)
    description.default_segment_ms = 10_000
    noting = NotingModel(model)
    noting.description = description
    measure_segment_cost(noting, clock_of([TIME_LIMIT_S]))
    ends = [10 * SAMPLE_RATE_HZ, 20 * SAMPLE_RATE_HZ]
    assert noting.encoded_frames == [model.feature_frame_count(end) for end in ends]


def test_a_slow_machine_measures_one_pass(model):
    """It must serve soon."""
    assert measure_segment_cost(model, clock_of([TIME_LIMIT_S])) == (TIME_LIMIT_S, 0.0)
