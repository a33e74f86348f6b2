"""What a training run begins with: a fresh network over a corpus, or a checkpoint."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from earvoice.models.assembly import is_derived
from earvoice.models.checkpoint import read_directory
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.halves import open_subsampler
from earvoice.training.model_shape import first_model
from earvoice.training.normalisation import Normalisation
from earvoice.training.target_text import TargetText

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from earvoice.models.config import ModelConfig


@dataclass(frozen=True)
class TrainingStart:
    """A configuration with all that belongs to it but trained weights.

    Attributes:
        config: of the network.
        source_model: SentencePiece model of the transcript.
        target_model: SentencePiece model of the translation.
        normalisation: feature statistics.
        weights: to begin with; None begins at random.
    """

    config: ModelConfig
    source_model: bytes
    target_model: bytes
    normalisation: Normalisation
    weights: Mapping[str, torch.Tensor] | None = None

    @classmethod
    def fresh(cls, corpus: Path) -> TrainingStart:
        """Begin at random, with the vocabularies and statistics that ``prepare`` wrote."""
        source = (corpus / "source.model").read_bytes()
        target = (corpus / "target.model").read_bytes()
        config = first_model(len(Vocabulary(source)), len(Vocabulary(target)))
        return cls(config, source, target, Normalisation.read(corpus))

    @classmethod
    def from_checkpoint(cls, directory: Path) -> TrainingStart:
        """Begin with the weights of a checkpoint directory.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        parts = read_directory(directory)
        return cls(
            config=parts.config,
            source_model=parts.source_vocabulary.model,
            target_model=parts.target_vocabulary.model,
            normalisation=Normalisation.from_model(parts.normalisation),
            weights=parts.tensors,
        )

    def trained_weights(self) -> dict[str, torch.Tensor]:
        """Return the weights by name, in a dictionary of the caller's own.

        Raises:
            ValueError: there are none.
        """
        if self.weights is None:
            message = "the network to begin with has no weights; allowed: one from a checkpoint"
            raise ValueError(message)
        return dict(self.weights)

    def digest(self) -> str:
        """Return SHA-256 of what weights mean nothing without: the vocabularies and statistics."""
        parts = (self.source_model, self.target_model)
        digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts))
        for values in (self.normalisation.mean, self.normalisation.deviation):
            digest.update(values.tobytes())
        return digest.hexdigest()

    def source(self) -> Vocabulary:
        """Return the pieces of the transcript."""
        return Vocabulary(self.source_model)

    def target(self) -> TargetText:
        """Return the target side."""
        return TargetText.of_model(self.config, self.target_model)

    def network(self, dropout: float) -> SpeechTranslationModel:
        """Build the network that is to be trained."""
        network = SpeechTranslationModel(self.config, dropout=dropout)
        if self.weights is None:
            open_subsampler(network)
            return network
        missing, unexpected = network.load_state_dict(
            {name: tensor.float() for name, tensor in self.weights.items()}, strict=False
        )
        wrong = [*unexpected, *(name for name in missing if not is_derived(name, self.config))]
        if wrong:
            message = f"tensor {wrong[0]} does not belong to the network or is missing"
            raise ValueError(message)
        return network
