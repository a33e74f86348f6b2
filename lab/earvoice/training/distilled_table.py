"""``distilled.tsv``: a teacher's translations, with the columns and keys of the corpus's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from earvoice.corpus.sentence import read_sentences

if TYPE_CHECKING:
    from pathlib import Path

    from earvoice.corpus.sentence import Sentence

DISTILLED = "distilled.tsv"


def read_distilled(corpus: Path) -> list[Sentence]:
    """Return the rows of ``distilled.tsv``.

    Raises:
        FileNotFoundError: no teacher has written any.
    """
    return read_sentences(corpus / DISTILLED)
