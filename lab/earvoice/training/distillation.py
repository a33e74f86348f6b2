"""What a teacher writes for every sentence of the corpus, as targets beside the gold ones.

``distilled.tsv`` has the columns of ``sentences.tsv``; its rows are the train sentences and texts
with the teacher's translations in the place of people's. A teacher of one's own writes the same
table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import torch

from earvoice.corpus.sentence import append_sentences, read_sentences
from earvoice.training.transcription import greedy_hypotheses

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from earvoice.corpus.sentence import Sentence
    from earvoice.models.vocabulary import Vocabulary
    from earvoice.training.target_text import TargetText
    from earvoice.training.teacher import TextTeacher

DISTILLED = "distilled.tsv"
_TOGETHER = 64
_ROWS_SAVED = 2_048
_Row = TypeVar("_Row")
_COLUMNS = {"de": "german", "es": "spanish"}


def read_distilled(corpus: Path) -> list[Sentence]:
    """Return the rows of ``distilled.tsv``.

    Raises:
        FileNotFoundError: no teacher has written any.
    """
    return read_sentences(corpus / DISTILLED)


def distil(corpus: Path, teacher: TextTeacher, source: Vocabulary, target: TargetText) -> None:
    """Write ``distilled.tsv``; rows that an interrupted run has written stay."""
    path = corpus / DISTILLED
    done = {row.key for row in read_sentences(path)} if path.exists() else set()
    rows = [row for row in read_sentences(corpus / "sentences.tsv") if row.split == "train"]
    rows += read_sentences(corpus / "texts.tsv")
    missing = [row for row in rows if row.key not in done and row.transcript]
    teacher.eval()
    for part in _parts(missing, _ROWS_SAVED):
        append_sentences(path, translate_rows(part, teacher, source, target))


@torch.inference_mode()
def translate_rows(
    rows: Sequence[Sentence], teacher: TextTeacher, source: Vocabulary, target: TargetText
) -> list[Sentence]:
    """Return the rows with the teacher's translation into every language, greedy."""
    ordered = sorted(range(len(rows)), key=lambda index: len(rows[index].transcript))
    written = list(rows)
    for part in _parts(ordered, _TOGETHER):
        pieces = [teacher_labels(source, rows[index].transcript) for index in part]
        lengths = torch.tensor([len(ids) for ids in pieces])
        labels = torch.zeros(len(pieces), int(lengths.max()), dtype=torch.int64)
        for row, ids in zip(labels, pieces, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        encoded = teacher.encode(labels, lengths)
        states = [row[:length] for row, length in zip(encoded, lengths.tolist(), strict=True)]
        for language in target.languages:
            opening = target.opening(language)
            hypotheses = greedy_hypotheses(teacher.decoder, states, opening)
            for index, tokens in zip(part, hypotheses, strict=True):
                text = target.vocabulary.decode(tokens)
                written[index] = replace(written[index], **{_COLUMNS[language]: text})
    return written


def teacher_labels(source: Vocabulary, transcript: str) -> list[int]:
    """Return a transcript as `TextData` gives it to a teacher: a blank before and after."""
    blank = len(source)
    return [blank, *source.encode(transcript), blank]


def _parts(rows: Sequence[_Row], size: int) -> Iterable[Sequence[_Row]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
