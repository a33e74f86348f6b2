"""From planned examples to padded batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.corpus.extraction import log_mel
from earvoice.corpus.feature_store import FeatureStore
from earvoice.corpus.sentence import read_sentences
from earvoice.models.vocabulary import EOS, PAD
from earvoice.training.augmentation import (
    MEL_BINS,
    SILENCE_NATS,
    NoiseBank,
    mask,
    vary_channel,
    vary_speaker,
)
from earvoice.training.example import SpokenClip

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from earvoice.corpus.sentence import Sentence
    from earvoice.models.vocabulary import Vocabulary
    from earvoice.training.example import Example
    from earvoice.training.normalisation import Normalisation
    from earvoice.training.recipe import AugmentationRecipe, TrainingRecipe

NO_TARGET = -100
"""Where cross-entropy looks away: padding, and whole clips without a translation."""

NO_ANCHOR = -1

_PAUSE_NATS = 9.0
"""Frames this far under the loudest one are pauses."""


@dataclass(frozen=True)
class Batch:
    """One padded batch.

    Attributes:
        features: [B, T, 80] float32, normalised, zero where padded.
        lengths: [B] int64 frames.
        previous_tokens: [B, L] int64, start token first.
        next_tokens: [B, L] int64, `NO_TARGET` where nothing is to be learned.
        transcripts: [sum of transcript lengths] int64 source ids, one after the other.
        transcript_lengths: [B] int64.
        anchors: [sum of transcript lengths] int64, about where each transcript token is spoken,
            in frames of 10 ms; `NO_ANCHOR` where that is not known.
    """

    features: torch.Tensor
    lengths: torch.Tensor
    previous_tokens: torch.Tensor
    next_tokens: torch.Tensor
    transcripts: torch.Tensor
    transcript_lengths: torch.Tensor
    anchors: torch.Tensor


class TrainingData:
    """All training clips in memory, and how examples are made of them."""

    def __init__(
        self,
        corpus: Path,
        recipe: TrainingRecipe,
        source: Vocabulary,
        target: Vocabulary,
        normalisation: Normalisation,
    ) -> None:
        """Load ``sentences.tsv`` and ``features/`` of a corpus."""
        self._recipe = recipe
        sentences = {row.key: row for row in read_sentences(corpus / "sentences.tsv")}
        self._features: list[NDArray[np.float16]] = []
        self._sentences: list[Sentence] = []
        voices = []
        for clip, features in FeatureStore(corpus / "features").read():
            if not clip.sentence:
                voices.append(features)
            elif sentences[clip.sentence].split == "train":
                self._features.append(features)
                self._sentences.append(sentences[clip.sentence])
        self._source = [source.encode(row.transcript) for row in self._sentences]
        self._characters = [[len(source.pieces[i]) for i in ids] for ids in self._source]
        self._target = [target.encode(row.german) for row in self._sentences]
        self._bank = NoiseBank(_white_noise(recipe.seed), voices)
        self._normalisation = normalisation

    def pool(self) -> list[SpokenClip]:
        """Return every training clip for `plan_epoch`, in the order of the conversations."""
        return [
            SpokenClip(index, row.group, len(self._features[index]), translated=bool(row.german))
            for index, row in enumerate(self._sentences)
        ]

    def assemble(self, examples: Sequence[Example], augmentation: AugmentationRecipe) -> Batch:
        """Make one batch; all chance comes from the examples' seeds."""
        made = [self._make(example, augmentation) for example in examples]
        sources = [
            [t for clip in example.clips for t in self._source[clip]] for example in examples
        ]
        targets = [
            [t for clip in example.clips for t in self._target[clip]] for example in examples
        ]
        known = [
            all(self._sentences[clip].german for clip in example.clips) for example in examples
        ]
        features = [rows for rows, _ in made]
        return collate(features, sources, targets, known, [anchors for _, anchors in made])

    def _make(
        self, example: Example, augmentation: AugmentationRecipe
    ) -> tuple[NDArray[np.float32], list[int]]:
        """Return normalised features, [frames, 80], and the anchors of the transcript."""
        generator = np.random.default_rng(example.seed)
        edges = generator.integers(*self._recipe.edge_frames, size=2).tolist()
        parts = [_silence(edges[0])]
        anchors: list[int] = []
        for number, clip in enumerate(example.clips):
            if number:
                parts.append(_silence(int(generator.integers(*self._recipe.pause_frames))))
            features = self._features[clip].astype(np.float32)
            features = vary_speaker(features, augmentation, generator)
            begin = sum(map(len, parts))
            anchors += [begin + a for a in anchor_frames(features, self._characters[clip])]
            parts.append(features)
        if not example.clips:
            parts.append(_silence(example.frames))
        parts.append(_silence(edges[1]))
        heard = vary_channel(np.concatenate(parts), self._bank, augmentation, generator)
        return mask(self._normalisation(heard), augmentation, generator), anchors


def collate(
    features: Sequence[NDArray[np.float32]],
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    known: Sequence[bool],
    anchors: Sequence[list[int]],
) -> Batch:
    """Pad examples to one batch.

    Args:
        features: normalised features, each [frames, 80].
        sources: transcript ids of each example.
        targets: translation ids of each example, without start and end.
        known: whether the translation is known; an empty known one means silence.
        anchors: where each transcript token is spoken, in frames, or `NO_ANCHOR`.
    """
    frames = [len(rows) for rows in features]
    padded = np.zeros((len(features), max(frames), MEL_BINS), np.float32)
    longest = max(len(ids) for ids in targets) + 1
    previous = torch.full((len(targets), longest), PAD)
    following = torch.full((len(targets), longest), NO_TARGET)
    for index, (rows, ids) in enumerate(zip(features, targets, strict=True)):
        padded[index, : len(rows)] = rows
        previous[index, : len(ids) + 1] = torch.tensor([EOS, *ids])
        if known[index]:
            following[index, : len(ids) + 1] = torch.tensor([*ids, EOS])
    return Batch(
        features=torch.from_numpy(padded),
        lengths=torch.tensor(frames),
        previous_tokens=previous,
        next_tokens=following,
        transcripts=torch.tensor([token for ids in sources for token in ids], dtype=torch.int64),
        transcript_lengths=torch.tensor([len(ids) for ids in sources]),
        anchors=torch.tensor([frame for row in anchors for frame in row], dtype=torch.int64),
    )


def anchor_frames(features: NDArray[np.float32], characters: Sequence[int]) -> list[int]:
    """Guess where each piece of a clip is spoken: letters last equally long, pauses do not count.

    Synthetic speech is steady enough for this to be right within a syllable or two.

    Args:
        features: log-mel of one clip before noise is added, [frames, 80].
        characters: letters of each piece.

    Returns:
        For each piece the frame of its middle.
    """
    loudness = features.mean(axis=1)
    spoken = np.cumsum(loudness > loudness.max() - _PAUSE_NATS)
    ends = np.cumsum(characters)
    middles = (ends - np.asarray(characters) / 2) / max(1, int(ends[-1]) if len(ends) else 1)
    places = np.searchsorted(spoken, middles * spoken[-1])
    return [min(int(place), len(features) - 1) for place in places]


def _silence(frames: int) -> NDArray[np.float32]:
    return np.full((frames, MEL_BINS), SILENCE_NATS, np.float32)


def _white_noise(seed: int) -> NDArray[np.float32]:
    """One minute of Gaussian noise as log-mel, each bin's mean taken off."""
    samples = np.random.default_rng(seed).normal(0.0, 0.03, 60 * 16_000).astype(np.float32)
    features = log_mel(samples).astype(np.float32)
    return np.asarray(features - features.mean(axis=0), dtype=np.float32)
