"""What a teacher writes for every sentence of the corpus, as targets beside the gold ones.

``distilled.tsv`` has the columns of ``sentences.tsv``; its rows are the train sentences and texts
with the teacher's translations in the place of people's. A teacher of one's own writes the same
table.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch

from earvoice.corpus.sentence import append_sentences, read_sentences
from earvoice.training.distilled_table import DISTILLED
from earvoice.training.text_data import mishear
from earvoice.training.transcription import greedy_hypotheses

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from earvoice.corpus.sentence import Sentence
    from earvoice.models.decoding import CachedDecoder
    from earvoice.models.vocabulary import Vocabulary
    from earvoice.training.recipe import TextRecipe
    from earvoice.training.target_text import TargetText

_TOGETHER = 64
_ROWS_SAVED = 2_048
_Row = TypeVar("_Row")
_COLUMNS = {"de": "german", "es": "spanish"}


class Teacher(Protocol):
    """What reads transcripts and writes translations; a network in evaluation mode."""

    @property
    def heard(self) -> TextRecipe:
        """How transcripts are shown to it."""

    @property
    def decoder(self) -> CachedDecoder:
        """Writes."""

    def encode(self, labels: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the states of [B, S] labels, [B, S, d]; those of padding mean nothing."""


def distil(
    corpus: Path,
    teacher: Teacher,
    source: Vocabulary,
    target: TargetText,
    *,
    spoken_only: bool = False,
) -> None:
    """Write ``distilled.tsv``; rows that an interrupted run has written stay.

    Args:
        corpus: its folder.
        teacher: translates.
        source: pieces of transcripts.
        target: pieces of translations, and the languages.
        spoken_only: leave out the sentences that nobody speaks.
    """
    path = corpus / DISTILLED
    done = {row.key for row in read_sentences(path)} if path.exists() else set()
    rows = [row for row in read_sentences(corpus / "sentences.tsv") if row.split == "train"]
    if not spoken_only:
        rows += read_sentences(corpus / "texts.tsv")
    missing = [row for row in rows if row.key not in done and row.transcript]
    for part in _parts(missing, _ROWS_SAVED):
        append_sentences(path, translate_rows(part, teacher, source, target))


@torch.inference_mode()
def translate_rows(
    rows: Sequence[Sentence], teacher: Teacher, source: Vocabulary, target: TargetText
) -> list[Sentence]:
    """Return the rows with the teacher's translation into every language, greedy."""
    ordered = sorted(range(len(rows)), key=lambda index: len(rows[index].transcript))
    written = list(rows)
    device = teacher.decoder.embed_tokens.weight.device
    for part in _parts(ordered, _TOGETHER):
        pieces = [_shown(rows[index], source, teacher.heard) for index in part]
        lengths = torch.tensor([len(ids) for ids in pieces])
        labels = torch.zeros(len(pieces), int(lengths.max()), dtype=torch.int64)
        for row, ids in zip(labels, pieces, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        encoded = teacher.encode(labels.to(device), lengths.to(device))
        states = [row[:length] for row, length in zip(encoded, lengths.tolist(), strict=True)]
        for language in target.languages:
            opening = target.opening(language)
            hypotheses = greedy_hypotheses(teacher.decoder, states, opening)
            for index, tokens in zip(part, hypotheses, strict=True):
                text = target.vocabulary.decode(tokens)
                written[index] = replace(written[index], **{_COLUMNS[language]: text})
    return written


def _shown(row: Sentence, source: Vocabulary, heard: TextRecipe) -> list[int]:
    """Return a transcript's labels; the same at every call."""
    generator = random.Random(row.key)
    return mishear(source.encode(row.transcript), len(source), heard, generator)


def _parts(rows: Sequence[_Row], size: int) -> Iterable[Sequence[_Row]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
