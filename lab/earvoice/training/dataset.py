"""From planned examples to padded batches."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.corpus.extraction import log_mel
from earvoice.corpus.feature_store import FeatureStore
from earvoice.corpus.sentence import read_sentences
from earvoice.models.vocabulary import EOS, PAD
from earvoice.training.anchor import anchor_frames, end_frame
from earvoice.training.augmentation import (
    MEL_BINS,
    SILENCE_NATS,
    NoiseBank,
    mask,
    vary_channel,
    vary_speaker,
)
from earvoice.training.distilled_table import read_distilled
from earvoice.training.example import SpokenClip
from earvoice.training.truncation import count_words, heard_pieces, writable_pieces

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from earvoice.corpus.feature_store import FeatureClip
    from earvoice.corpus.sentence import Sentence
    from earvoice.models.vocabulary import Vocabulary
    from earvoice.training.example import Example
    from earvoice.training.normalisation import Normalisation
    from earvoice.training.recipe import AugmentationRecipe, TrainingRecipe
    from earvoice.training.target_text import TargetText

NO_TARGET = -100
"""Where cross-entropy looks away: padding, and whole clips without a translation."""

NO_ANCHOR = -1


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


@dataclass(frozen=True)
class Target:
    """What a network is to write for one input.

    Attributes:
        opening: ids that are forced: the start token and perhaps a language tag.
        ids: the translation, without start and end; an empty known one means silence.
        known: whether there is a translation to learn from.
    """

    opening: list[int]
    ids: list[int]
    known: bool = True


class TrainingData:
    """All training clips in memory, and how examples are made of them."""

    def __init__(
        self,
        corpus: Path,
        recipe: TrainingRecipe,
        source: Vocabulary,
        target: TargetText,
        normalisation: Normalisation,
    ) -> None:
        """Load ``sentences.tsv`` and ``features/`` of a corpus.

        Clips of sentences that the table no longer has are left out, and their number is told.
        """
        self._recipe = recipe
        self._target_text = target
        sentences = {row.key: row for row in read_sentences(corpus / "sentences.tsv")}
        self._features: list[NDArray[np.float16]] = []
        self._sentences: list[Sentence] = []
        self._clips: list[FeatureClip] = []
        voices = []
        strangers = 0
        for clip, features in FeatureStore(corpus / "features").read():
            if not clip.sentence:
                voices.append(features)
            elif clip.sentence not in sentences:
                strangers += 1
            elif sentences[clip.sentence].split == "train":
                self._clips.append(clip)
                self._features.append(features)
                self._sentences.append(sentences[clip.sentence])
        if strangers:
            sys.stderr.write(
                f"{strangers} clips left out: {corpus} no longer has their sentences\n"
            )
        self._source_vocabulary = source
        self._source = [source.encode(row.transcript) for row in self._sentences]
        self._characters = [[len(source.pieces[i]) for i in ids] for ids in self._source]
        self._targets = [target.encode(row) for row in self._sentences]
        taught = {row.key: row for row in read_distilled(corpus)} if recipe.distilled_share else {}
        self._taught = [
            target.encode(taught[row.key]) if row.key in taught else {} for row in self._sentences
        ]
        self._bank = NoiseBank(_white_noise(recipe.seed), voices)
        self._normalisation = normalisation

    def pool(self) -> list[SpokenClip]:
        """Return every training clip for `plan_epoch`, in the order of the conversations."""
        return [self._describe(index) for index in range(len(self._clips))]

    def _describe(self, index: int) -> SpokenClip:
        """Describe a clip; a conversation's second speaking is a conversation of its own."""
        clip, translated = self._clips[index], bool(self._targets[index])
        again = clip.key.removeprefix(clip.sentence)
        repeats = self._recipe.neural_repeats if again == "/neural" else 1
        return SpokenClip(
            index,
            self._sentences[index].group + again,
            clip.frames,
            translated=translated,
            repeats=repeats if translated else self._recipe.real_repeats,
        )

    def assemble(self, examples: Sequence[Example], augmentation: AugmentationRecipe) -> Batch:
        """Make one batch; all chance comes from the examples' seeds."""
        heard = [self._hear(example) for example in examples]
        parts = list(zip(examples, heard, strict=True))
        made = [self._make(example, pieces, augmentation) for example, pieces in parts]
        sources = [[piece for clip in pieces for piece in clip] for pieces in heard]
        targets = [self._draw_target(example, pieces) for example, pieces in parts]
        features = [rows for rows, _ in made]
        return collate(features, sources, targets, [anchors for _, anchors in made])

    def _hear(self, example: Example) -> list[list[int]]:
        """Return what is heard of each clip, source ids; the last one may be cut off."""
        heard = [self._source[clip] for clip in example.clips]
        if example.heard_share < 1.0:
            heard[-1] = heard_pieces(heard[-1], example.heard_share, self._source_vocabulary)
        return heard

    def _draw_target(self, example: Example, heard: list[list[int]]) -> Target:
        """Draw a language into which everything that is said has a translation."""
        languages = [
            language
            for language in self._target_text.languages
            if all(language in self._targets[clip] for clip in example.clips)
        ]
        if not languages:
            return Target([EOS], [], known=False)
        generator = random.Random(example.seed)
        language = generator.choice(languages)
        written = [self._written(clip, language, generator) for clip in example.clips]
        if example.heard_share < 1.0:
            # The end token stands behind a part, too. A policy that has heard a part asks how
            # far it can be written, and that token is the only way to say "no further": without
            # it, a network would learn nothing here but what whole sentences teach it.
            written[-1] = self._writable(written[-1], heard[-1], self._source[example.clips[-1]])
        ids = [piece for clip in written for piece in clip]
        return Target(self._target_text.opening(language), ids)

    def _writable(self, written: list[int], heard: list[int], whole: list[int]) -> list[int]:
        """Return what of a clip's translation can be written once a part of it is heard."""
        heard_words, words = (count_words(ids, self._source_vocabulary) for ids in (heard, whole))
        return writable_pieces(written, heard_words, words, self._target_text.vocabulary)

    def _written(self, clip: int, language: str, generator: random.Random) -> list[int]:
        """Return a translation of one clip: gold, or at times the teacher's."""
        taught = self._taught[clip].get(language)
        if taught and generator.random() < self._recipe.distilled_share:
            return taught
        return self._targets[clip][language]

    def _make(
        self, example: Example, heard: list[list[int]], augmentation: AugmentationRecipe
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
            begin, pieces = sum(map(len, parts)), len(heard[number])
            places = anchor_frames(features, self._characters[clip])[:pieces]
            anchors += [begin + place for place in places]
            if pieces < len(self._characters[clip]):
                features = features[: end_frame(features, self._characters[clip], pieces) + 1]
            parts.append(features)
        if not example.clips:
            parts.append(self._nobody(example.frames, generator))
        if example.heard_share == 1.0:
            parts.append(_silence(edges[1]))
        varied = vary_channel(np.concatenate(parts), self._bank, augmentation, generator)
        return mask(self._normalisation(varied), augmentation, generator), anchors

    def _nobody(self, frames: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """Return what nobody says to us: silence, or the voices of others."""
        if generator.random() >= self._recipe.empty_babble_chance:
            return _silence(frames)
        loudness_nats = np.float32(generator.uniform(*self._recipe.empty_babble_nats))
        return self._bank.babble(frames, generator) + loudness_nats


def collate(
    features: Sequence[NDArray[np.float32]],
    sources: Sequence[list[int]],
    targets: Sequence[Target],
    anchors: Sequence[list[int]],
) -> Batch:
    """Pad examples to one batch.

    Args:
        features: normalised features, each [frames, 80].
        sources: transcript ids of each example.
        targets: the translation of each example.
        anchors: where each transcript token is spoken, in frames, or `NO_ANCHOR`.
    """
    frames = [len(rows) for rows in features]
    padded = np.zeros((len(features), max(frames), MEL_BINS), np.float32)
    for index, rows in enumerate(features):
        padded[index, : len(rows)] = rows
    previous, following = teach(targets)
    return Batch(
        features=torch.from_numpy(padded),
        lengths=torch.tensor(frames),
        previous_tokens=previous,
        next_tokens=following,
        transcripts=torch.tensor([token for ids in sources for token in ids], dtype=torch.int64),
        transcript_lengths=torch.tensor([len(ids) for ids in sources]),
        anchors=torch.tensor([frame for row in anchors for frame in row], dtype=torch.int64),
    )


def teach(targets: Sequence[Target]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the decoder reads and what it is to write next, both [B, L] int64, padded."""
    longest = max(len(target.opening) + len(target.ids) for target in targets)
    previous = torch.full((len(targets), longest), PAD)
    following = torch.full((len(targets), longest), NO_TARGET)
    for index, target in enumerate(targets):
        forced, ids = target.opening, target.ids
        end = len(forced) + len(ids)
        previous[index, :end] = torch.tensor([*forced, *ids])
        if target.known:
            following[index, len(forced) - 1 : end] = torch.tensor([*ids, EOS])
    return previous, following


def _silence(frames: int) -> NDArray[np.float32]:
    return np.full((frames, MEL_BINS), SILENCE_NATS, np.float32)


def _white_noise(seed: int) -> NDArray[np.float32]:
    """One minute of Gaussian noise as log-mel, each bin's mean taken off."""
    samples = np.random.default_rng(seed).normal(0.0, 0.03, 60 * 16_000).astype(np.float32)
    features = log_mel(samples).astype(np.float32)
    return np.asarray(features - features.mean(axis=0), dtype=np.float32)
