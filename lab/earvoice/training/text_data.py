"""Training the translation half on text alone: transcripts take the place of heard speech."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from earvoice.corpus.sentence import read_sentences
from earvoice.models.vocabulary import SPECIALS
from earvoice.training.dataset import Target, teach
from earvoice.training.distilled_table import read_distilled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from earvoice.models.vocabulary import Vocabulary
    from earvoice.training.recipe import TextRecipe
    from earvoice.training.target_text import TargetText


@dataclass(frozen=True)
class TextBatch:
    """One padded batch of text.

    Attributes:
        labels: [B, S] int64 CTC labels as a transcript would show them, blanks included.
        lengths: [B] int64 valid labels.
        previous_tokens: [B, L] int64, start token first.
        next_tokens: [B, L] int64, `NO_TARGET` where padded.
    """

    labels: torch.Tensor
    lengths: torch.Tensor
    previous_tokens: torch.Tensor
    next_tokens: torch.Tensor


@dataclass(frozen=True)
class TextPair:
    """Source pieces and their translation into one language."""

    language: str
    source: list[int]
    target: list[int]


class TextData:
    """All sentence pairs, spoken or not, and batches of them that sound misheard."""

    def __init__(
        self, corpus: Path, recipe: TextRecipe, source: Vocabulary, target: TargetText
    ) -> None:
        """Load the train sentences, all of ``texts.tsv``, and a teacher's where it is asked."""
        spoken = [row for row in read_sentences(corpus / "sentences.tsv") if row.split == "train"]
        rows = spoken * recipe.spoken_repeats + read_sentences(corpus / "texts.tsv")
        if recipe.distilled:
            rows += read_distilled(corpus)
        self._recipe = recipe
        self._blank = len(source)
        self._target_text = target
        sources = [source.encode(row.transcript) for row in rows]
        targets = [target.encode(row) for row in rows]
        self._pairs = [
            TextPair(language, heard, written[language])
            for language in target.languages
            for heard, written in zip(sources, targets, strict=True)
            if language in written
        ]

    def draw(self, seed: int) -> TextBatch:
        """Draw a batch; sentences that stood together in the corpus are joined at times.

        `recipe.buckets` seeds in a row share one draw, cut up by length, so that padding is rare.
        """
        buckets = self._recipe.buckets
        generator = random.Random(seed // buckets)
        chosen = []
        for _ in range(self._recipe.batch_sentences * buckets):
            start = generator.randrange(len(self._pairs))
            row = self._pairs[start : start + generator.choice((1, 1, 1, 2, 3, 4))]
            chosen.append(_joined([pair for pair in row if pair.language == row[0].language]))
        chosen.sort(key=lambda pair: len(pair.source))
        first = self._recipe.batch_sentences * (seed % buckets)
        part = chosen[first : first + self._recipe.batch_sentences]
        sources = [mishear(pair.source, self._blank, self._recipe, generator) for pair in part]
        opening = self._target_text.opening
        return _padded(sources, [Target(opening(pair.language), pair.target) for pair in part])


def _joined(pairs: Sequence[TextPair]) -> TextPair:
    return TextPair(
        pairs[0].language,
        [piece for pair in pairs for piece in pair.source],
        [piece for pair in pairs for piece in pair.target],
    )


def mishear(
    pieces: list[int], blank: int, recipe: TextRecipe, generator: random.Random
) -> list[int]:
    """Return `pieces` as a CTC transcript would show them: some wrong, some lost, blanks between.

    No two neighbours are equal unless a blank stands between, as in compressed CTC output.
    """
    heard = [blank]
    for original in pieces:
        if generator.random() < recipe.drop_chance:
            continue
        piece = original
        if generator.random() < recipe.substitution_chance:
            piece = generator.randrange(len(SPECIALS), blank)
        if heard[-1] != blank and (heard[-1] == piece or generator.random() < recipe.blank_chance):
            heard.append(blank)
        heard.append(piece)
    if heard[-1] != blank:
        heard.append(blank)
    return heard


def _padded(sources: list[list[int]], targets: list[Target]) -> TextBatch:
    labels = torch.zeros((len(sources), max(map(len, sources))), dtype=torch.int64)
    for index, source in enumerate(sources):
        labels[index, : len(source)] = torch.tensor(source)
    lengths = torch.tensor([len(source) for source in sources])
    return TextBatch(labels, lengths, *teach(targets))
