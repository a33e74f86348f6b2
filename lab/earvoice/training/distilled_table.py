"""``distilled.tsv``: a teacher's translations, with the columns and keys of the corpus's tables."""

from __future__ import annotations

from collections import Counter
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
        ValueError: two rows have one key.
    """
    rows = read_sentences(corpus / DISTILLED)
    repeated = [key for key, count in Counter(row.key for row in rows).items() if count > 1]
    if repeated:
        message = (
            f"{corpus / DISTILLED}: {len(repeated)} keys stand twice, {repeated[0]!r} first; "
            "allowed: each once. Older corpora had such keys: make texts.tsv and it again"
        )
        raise ValueError(message)
    return rows
