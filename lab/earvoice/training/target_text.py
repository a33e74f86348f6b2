"""The target side of a network: its pieces, its languages and how each is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from earvoice.models.assembly import language_tags
from earvoice.models.vocabulary import EOS, Vocabulary

if TYPE_CHECKING:
    from earvoice.corpus.sentence import Sentence
    from earvoice.models.checkpoint import Checkpoint
    from earvoice.models.config import ModelConfig


@dataclass(frozen=True)
class TargetText:
    """Encodes translations into the pieces of a network.

    Attributes:
        vocabulary: the pieces, language tags included.
        tags: for each language the piece that asks for it (Polák 2022, model B); empty where
            the network writes one language only.
    """

    vocabulary: Vocabulary
    tags: dict[str, str]

    @classmethod
    def of_model(cls, config: ModelConfig, model: bytes) -> TargetText:
        """Return the target side of a configuration with a SentencePiece model."""
        tags = {language.code: language.tag for language in config.target_languages}
        return cls(Vocabulary(model, language_tags(config)), tags)

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint) -> TargetText:
        """Return the target side of a loaded checkpoint."""
        return cls.of_model(checkpoint.config, checkpoint.target_vocabulary.model)

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages, in the order of the configuration."""
        return tuple(self.tags)

    def opening(self, language: str) -> list[int]:
        """Return what every translation begins with: the start token, and the language's tag."""
        tag = self.tags[language]
        return [EOS, self.vocabulary.id_of(tag)] if tag else [EOS]

    def encode(self, sentence: Sentence) -> dict[str, list[int]]:
        """Return the pieces of each translation that exists, without start and end."""
        return {
            language: self.vocabulary.encode(sentence.translation(language))
            for language in self.languages
            if sentence.translation(language)
        }
