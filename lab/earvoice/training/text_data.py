"""Training the translation half on text alone: transcripts take the place of heard speech."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from earvoice.corpus.sentence import read_sentences
from earvoice.models.vocabulary import EOS, PAD, SPECIALS
from earvoice.training.dataset import NO_TARGET

if TYPE_CHECKING:
    from pathlib import Path

    from earvoice.models.vocabulary import Vocabulary
    from earvoice.training.recipe import TextRecipe


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


class TextData:
    """All sentence pairs, spoken or not, and batches of them that sound misheard."""

    def __init__(
        self, corpus: Path, recipe: TextRecipe, source: Vocabulary, target: Vocabulary
    ) -> None:
        """Load the train sentences of ``sentences.tsv`` and all of ``texts.tsv``."""
        spoken = [row for row in read_sentences(corpus / "sentences.tsv") if row.split == "train"]
        rows = [row for row in spoken if row.german] * recipe.spoken_repeats
        rows += read_sentences(corpus / "texts.tsv")
        self._recipe = recipe
        self._blank = len(source)
        self._source = [source.encode(row.transcript) for row in rows]
        self._target = [target.encode(row.german) for row in rows]

    def draw(self, seed: int) -> TextBatch:
        """Draw a batch; sentences that stood together in the corpus are joined at times.

        `recipe.buckets` seeds in a row share one draw, cut up by length, so that padding is rare.
        """
        buckets = self._recipe.buckets
        generator = random.Random(seed // buckets)
        chosen = []
        for _ in range(self._recipe.batch_sentences * buckets):
            start = generator.randrange(len(self._source))
            stop = min(start + generator.choice((1, 1, 1, 2, 3, 4)), len(self._source))
            chosen.append(([p for row in self._source[start:stop] for p in row], start, stop))
        chosen.sort(key=lambda row: len(row[0]))
        first = self._recipe.batch_sentences * (seed % buckets)
        part = chosen[first : first + self._recipe.batch_sentences]
        sources = [mishear(row[0], self._blank, self._recipe, generator) for row in part]
        targets = [
            [piece for row in self._target[start:stop] for piece in row] for _, start, stop in part
        ]
        return _padded(sources, targets)


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


def _padded(sources: list[list[int]], targets: list[list[int]]) -> TextBatch:
    labels = torch.zeros((len(sources), max(map(len, sources))), dtype=torch.int64)
    longest = max(map(len, targets)) + 1
    previous = torch.full((len(targets), longest), PAD)
    following = torch.full((len(targets), longest), NO_TARGET)
    for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
        labels[index, : len(source)] = torch.tensor(source)
        previous[index, : len(target) + 1] = torch.tensor([EOS, *target])
        following[index, : len(target) + 1] = torch.tensor([*target, EOS])
    lengths = torch.tensor([len(source) for source in sources])
    return TextBatch(labels, lengths, previous, following)
