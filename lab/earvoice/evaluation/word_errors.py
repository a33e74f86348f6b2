"""Word errors: which words of a text its reference has, as captions are judged."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence

from earvoice.evaluation.instance import Unit, split_text

_TITLES = {"mr": "mister", "mrs": "missus", "dr": "doctor", "st": "saint", "prof": "professor"}
"""Written and said differently, and no error therefore (Radford 2022, appendix C)."""
# Between figures a dot, comma or colon is no punctuation; inside a word an apostrophe is none.
_WORD = re.compile(r"[^\W_]+(?:(?:'|(?<=\d)[.,:](?=\d))[^\W_]+)*")


def plain_words(text: str, unit: Unit = "word") -> list[str]:
    """Return the words in lower case, without punctuation, titles in full, figures as written.

    Args:
        unit: of a language without blanks the characters are counted.
    """
    found: list[str] = _WORD.findall(text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    return split_text(" ".join(_TITLES.get(word, word) for word in found), unit)


def count_errors(hypothesis: Sequence[str], reference: Sequence[str]) -> int:
    """Return the fewest substitutions, insertions and deletions (Levenshtein)."""
    (last,) = deque(_rows(hypothesis, reference), maxlen=1)
    return last[-1]


def right_words(hypothesis: Sequence[str], reference: Sequence[str]) -> list[bool]:
    """Say of each word whether it stands for the same one in an alignment with fewest errors."""
    rows = list(_rows(hypothesis, reference))
    right = [False] * len(hypothesis)
    i, j = len(hypothesis), len(reference)
    while i and j:
        same = hypothesis[i - 1] == reference[j - 1]
        if rows[i][j] == rows[i - 1][j - 1] + (not same):
            right[i - 1] = same
            i, j = i - 1, j - 1
        elif rows[i][j] == rows[i - 1][j] + 1:
            i -= 1
        else:
            j -= 1
    return right


def _rows(hypothesis: Sequence[str], reference: Sequence[str]) -> Iterator[list[int]]:
    """Yield, for ever more words of a hypothesis, the errors to each beginning of a reference."""
    row = list(range(len(reference) + 1))
    yield row
    for word in hypothesis:
        before, row = row, [row[0] + 1]
        for place, wanted in enumerate(reference):
            changed = before[place] + (word != wanted)
            row.append(min(changed, before[place + 1] + 1, row[place] + 1))
        yield row
