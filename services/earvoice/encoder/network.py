"""What a session needs from a model; the real ones are in `model`, tests bring their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Protocol

from earvoice.api.v1 import types_pb2
from earvoice.encoder.audio import Samples


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
    """CTC label of every encoder frame; none where the model has no CTC head. They spell the
    likeliest text if `is_whole` and states are not compressed; else each is its frame's likeliest.
    """
    is_whole: bool = True
    """Whether every state was computed from all of the sound; else some are kept from earlier."""


NO_STATES = Encoding(b"", (), (), ())


class LabelKind(Enum):
    """What a CTC label does to the words of the transcript."""

    SILENT = auto()
    """It writes nothing."""
    BORDER = auto()
    """A space between two words, alone: the word before is over, the next has no letter yet."""
    START = auto()
    """It begins a word."""
    INNER = auto()
    """It continues a word."""


class Network(Protocol):
    """A loaded encoder with its features, its voice activity and its source vocabulary."""

    description: types_pb2.ModelDescription
    blank: int
    """The CTC label that means blank."""
    dimension: int
    """Values of one state."""
    feature_bins: int
    """Values of one feature frame."""
    feature_context_frames: int
    """Frames at the sound's start whose windows reach before it, into guessed samples."""
    encoder_frame_ms: int
    """Milliseconds between two encoder frames."""

    @property
    def label_kinds(self) -> Sequence[LabelKind]:
        """The kind of each CTC label."""

    def open_features(self) -> Callable[[Samples], Samples]:
        """Return a function that computes a new utterance's features, [frames, bins] float32.

        It takes the next [n] samples at 16 kHz, and returns the frames that they complete.
        """

    def feature_frame_count(self, sample_count: int) -> int:
        """Feature frames in this many samples at 16 kHz."""

    def open_voice_activity(self) -> Callable[[Samples], list[float]]:
        """The same for speech probabilities, one for each window of 512 samples."""

    def encode(self, features: Samples) -> Encoding:
        """Encode [frames, bins] float32, frames ≥ 1."""

    def open_encoding(self) -> Callable[[Samples], Encoding]:
        """Return a function that encodes a new utterance repeatedly as it grows.

        It takes all features so far, more each time. What it returns may not be whole.
        """

    def transcribe(self, labels: Sequence[int]) -> str:
        """The text of a sequence of labels without blanks and repeats."""
