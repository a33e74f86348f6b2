"""Held-out clips, and what a network makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.corpus.feature_store import FeatureStore
from earvoice.corpus.sentence import read_sentences
from earvoice.training.metric import Score, bleu, word_error_rate
from earvoice.training.transcription import beam_translation, ctc_tokens, greedy_translations

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from earvoice.corpus.sentence import Sentence
    from earvoice.models.encoder import EncoderOutput
    from earvoice.models.frontend import FeatureNormalisation
    from earvoice.models.translation import SpeechTranslationModel
    from earvoice.models.vocabulary import Vocabulary
    from earvoice.training.target_text import TargetText

_FLOOR_NATS = 2.0
_DECODED_TOGETHER = 16


@dataclass(frozen=True)
class DevClip:
    """A held-out clip.

    Attributes:
        features: [frames, 80] float32, normalised.
        sentence: what is said, and its translation.
    """

    features: torch.Tensor
    sentence: Sentence

    @classmethod
    def of(
        cls, features: NDArray[np.float16], sentence: Sentence, normalisation: FeatureNormalisation
    ) -> DevClip:
        """Normalise a clip's log-mel features, [frames, 80].

        A faint noise floor is added, as quantisation to 16 bits leaves in any recording.
        """
        return cls(normalisation(torch.from_numpy(_with_floor(features))), sentence)


def read_dev_sets(corpus: Path, normalisation: FeatureNormalisation) -> dict[str, list[DevClip]]:
    """Return the held-out clips by set: ``DOMAIN/VOICE`` for synthetic ones, else ``DOMAIN``."""
    sentences = read_dev_sentences(corpus)
    sets: dict[str, list[DevClip]] = {}
    for clip, features in FeatureStore(corpus / "features").read():
        sentence = sentences.get(clip.sentence)
        if sentence is not None:
            voice = voice_kind(clip.key)
            name = f"{sentence.domain}/{voice}" if voice else sentence.domain
            sets.setdefault(name, []).append(DevClip.of(features, sentence, normalisation))
    return sets


def read_dev_sentences(corpus: Path) -> dict[str, Sentence]:
    """Return the held-out sentences of a corpus by key."""
    rows = read_sentences(corpus / "sentences.tsv")
    return {row.key: row for row in rows if row.split == "dev"}


def voice_kind(key: str) -> str:
    """Return what kind of voice speaks a held-out clip, e.g. ``unseen``; nothing for a person."""
    return key.partition("/")[2]


def score(
    name: str,
    clips: Sequence[DevClip],
    network: SpeechTranslationModel,
    source: Vocabulary,
    target: TargetText,
    language: str = "de",
    beam: int = 1,
) -> Score:
    """Read and translate every clip; the network must be in evaluation mode.

    A beam of 1 is greedy search.
    """
    transcripts: list[str] = []
    translations: list[str] = []
    for part in _parts(clips):
        encoded = [network.encoder.encode(clip.features) for clip in part]
        blank = network.config.blank
        transcripts += [source.decode(ctc_tokens(output, blank)) for output in encoded]
        if part[0].sentence.translation(language):
            translations += translate(encoded, network, target, language, beam)
    transcribed = [clip.sentence.transcript for clip in clips]
    errors = word_error_rate(transcripts, transcribed)
    if not translations:
        return Score(name, len(clips), errors)
    value, brevity, _ = bleu(translations, [clip.sentence.translation(language) for clip in clips])
    return Score(name, len(clips), errors, value, brevity)


def translate(
    encoded: Sequence[EncoderOutput],
    network: SpeechTranslationModel,
    target: TargetText,
    language: str,
    beam: int,
) -> list[str]:
    """Return the translations as text."""
    opening = target.opening(language)
    if beam == 1:
        hypotheses = greedy_translations(network, encoded, opening)
    else:
        hypotheses = [beam_translation(network, output, opening, beam) for output in encoded]
    return [target.vocabulary.decode(tokens) for tokens in hypotheses]


def with_translation(clips: Sequence[DevClip], language: str) -> list[DevClip]:
    """Return the clips whose translation into `language` is known."""
    return [clip for clip in clips if clip.sentence.translation(language)]


def _parts(clips: Sequence[DevClip]) -> Iterable[Sequence[DevClip]]:
    for start in range(0, len(clips), _DECODED_TOGETHER):
        yield clips[start : start + _DECODED_TOGETHER]


def _with_floor(features: NDArray[np.float16]) -> NDArray[np.float32]:
    power = np.exp(features.astype(np.float32)) + np.float32(np.exp(_FLOOR_NATS))
    return np.asarray(np.log(power), dtype=np.float32)
