"""One sentence pair of the corpus, and its table on disk."""

from __future__ import annotations

import csv
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING

from earvoice.runtime.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class Sentence:
    """An English sentence, how it is spoken, and its translations.

    Attributes:
        key: unique name within the corpus, e.g. ``chat-00012``.
        split: ``train`` or ``dev``.
        domain: ``chat``, ``restaurant``, ``tatoeba``, ``ljspeech`` or ``librispeech``.
        group: sentences with one group follow each other in one conversation.
        speaker: sentences of one group and speaker are spoken by one voice.
        spoken: English as the synthesiser reads it: numbers as words, punctuation kept.
        transcript: the CTC target: `spoken`, lower case, without punctuation.
        german: its translation; empty where none exists.
        spanish: likewise; transcribed speech has neither.
    """

    key: str
    split: str
    domain: str
    group: str
    speaker: str
    spoken: str
    transcript: str
    german: str
    spanish: str

    def translation(self, language: str) -> str:
        """Return the translation into ``de`` or ``es``; empty where none exists."""
        return {"de": self.german, "es": self.spanish}[language]


_COLUMNS = tuple(field.name for field in fields(Sentence))


def write_sentences(path: Path, sentences: Iterable[Sentence]) -> None:
    """Write a tab-separated table with a header line."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_NONE, escapechar="\\")
        writer.writerow(_COLUMNS)
        writer.writerows(astuple(sentence) for sentence in sentences)


def append_sentences(path: Path, sentences: Iterable[Sentence]) -> None:
    """Add rows to a table, whole or not at all; it is made when missing."""
    rows = read_sentences(path) if path.exists() else []
    with atomic_write(path) as partial:
        write_sentences(partial, [*rows, *sentences])


def read_sentences(path: Path) -> list[Sentence]:
    """Read what `write_sentences` wrote.

    Raises:
        ValueError: the header is not the one this version writes.
    """
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE, escapechar="\\")
        header = tuple(next(rows))
        if header != _COLUMNS:
            message = f"{path}: columns are {header}, expected {_COLUMNS}"
            raise ValueError(message)
        return [Sentence(*row) for row in rows]
