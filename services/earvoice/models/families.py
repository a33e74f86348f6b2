"""The registry of encoder families, a row each; the rest of a family is in its one module."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from earvoice.models.errors import ModelError

if TYPE_CHECKING:
    from earvoice.models.config import FamilyConfig, ModelConfig
    from earvoice.models.encoder import SpeechEncoder
    from earvoice.models.frontend import Analysis

FAMILIES: dict[str, str] = {
    "conformer": "earvoice.models.encoder",
    "lstm": "earvoice.models.lstm",
    "text": "earvoice.models.text",
    "transformer": "earvoice.models.encoder",
    "whisper": "earvoice.models.whisper",
}
"""`encoder.architecture` of a configuration to the module that has its `FAMILY`."""


@dataclasses.dataclass(frozen=True)
class EncoderFamily:
    """What is special about the encoders of one family."""

    config: type[FamilyConfig]
    encoder: Callable[[ModelConfig, float], SpeechEncoder]
    """From a model's configuration and the dropout."""
    analysis: Callable[[], Analysis] | None
    """From sound to features, before normalisation; None where it reads words."""

    @property
    def reads_words(self) -> bool:
        return self.analysis is None

    def open_analysis(self) -> Analysis:
        if self.analysis is None:
            raise ModelError("the encoder reads words; allowed here: one that hears")
        return self.analysis()


def family_of(architecture: str) -> EncoderFamily:
    family: EncoderFamily = import_module(FAMILIES[architecture]).FAMILY
    return family
