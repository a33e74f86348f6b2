"""The decoder of a replay, as the decoder service has it; loaded when a search needs it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import torch

from earvoice.api.v1 import types_pb2
from earvoice.decoder.model import ServedModel
from earvoice.decoder.strategies.search import SearchStrategy
from earvoice.evaluation.recording import Recording, RecordingError
from earvoice.evaluation.served_model import read_served_model
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.decoding import CachedDecoder
from earvoice.models.errors import ModelError
from earvoice.models.precision import Precision
from earvoice.runtime.model_description import model_description


class ReplayModel:
    """What is known about a model, and its decoder.

    Args:
        path: the checkpoint.
        served: what is known about it.

    Attributes:
        served: the same.
    """

    def __init__(self, path: Path, served: ServedModel) -> None:
        self.served = served
        self._path = path

    @property
    def description(self) -> types_pb2.ModelDescription:
        """The model as services describe it."""
        return model_description(self.served.facts)

    @property
    def is_loaded(self) -> bool:
        """Whether the network was needed."""
        return "decoder" in vars(self)

    @cached_property
    def decoder(self) -> CachedDecoder:
        """The network.

        Raises:
            RecordingError: the model cannot be loaded, or is another.
        """
        facts = self.served.facts
        precision: Precision = "bf16" if facts.computes_in_bfloat16 else "fp32"
        torch.set_num_threads(1)
        try:
            checkpoint = load_checkpoint(self._path, precision=precision)
        except ModelError as error:
            raise RecordingError(f"model {self._path}: {error}") from error
        if checkpoint.hash != facts.hash:
            raise RecordingError(
                f"model {self._path} has hash {checkpoint.hash}; the recording was made with "
                f"{facts.name}, {facts.hash}"
            )
        return checkpoint.network.decoder

    @cached_property
    def strategy(self) -> SearchStrategy:
        """The service's search."""
        return SearchStrategy(self.decoder, torch.device("cpu"))

    def opening(self, language: str) -> tuple[int, ...]:
        """Return start token and language tokens."""
        return (self.served.tokens.end_token, *self.served.language_tokens[language])


def load_replay_model(path: Path, recording: Recording) -> ReplayModel:
    """Return the model that a recording was made with.

    Args:
        path: its checkpoint, read when it is needed.
        recording: what was made with it.

    Raises:
        RecordingError: the recording does not say what it was made with.
    """
    return ReplayModel(path, read_served_model(recording.folder))
