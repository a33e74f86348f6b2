"""English as a recogniser may write it: a word that sounds similar, a missing comma.

Translation is trained on written text but applied to recognised text, in which one word of ten is
wrong. With such errors in training, a model relies more on the surrounding words (Sperber 2017).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np

    Sound = tuple[str, ...]

WORD_SHARE, COMMA_SHARE = 0.08, 0.3
"""Share of words (not names) that are replaced; of commas dropped or turned into full stops."""
LEAST_TIMES = 3
"""A recogniser is assumed not to write words that occur in fewer texts."""
_WORD = re.compile(r"(?<![\w'])[a-z](?:[a-z']*[a-z])?(?![\w'])")
_COMMA = re.compile(r", (\w)")


def said_often(texts: Iterable[str]) -> dict[str, int]:
    """In how many texts each lower-case word occurs, if in at least `LEAST_TIMES`."""
    counts = Counter(word for text in texts for word in {*_WORD.findall(text)})
    return {word: count for word, count in sorted(counts.items()) if count >= LEAST_TIMES}


class Misheard:
    """Simulates recognition errors in a text.

    Args:
        counts: the words that may be substituted, and their frequencies.
        sounds: phonemes of each of them.
    """

    def __init__(self, counts: Mapping[str, int], sounds: Iterable[Sound]) -> None:
        self._counts = counts
        self._sounds = dict(zip(counts, sounds, strict=True))
        self._alike: dict[Sound, list[str]] = defaultdict(list)
        for word, sound in self._sounds.items():
            for part in _parts(sound):
                self._alike[part].append(word)
        self._others = cache(self._find_others)

    def heard(self, text: str, generator: np.random.Generator) -> str:
        """The text with some of its words and commas misheard."""

        def word(match: re.Match[str]) -> str:
            said: str = match[0]
            if generator.random() >= WORD_SHARE:
                return said
            words, until = self._others(said)
            if not words:
                return said
            return words[bisect_right(until, generator.random() * until[-1])]

        def comma(match: re.Match[str]) -> str:
            drawn, letter = generator.random(), match[1]
            if drawn >= COMMA_SHARE:
                return match[0]
            return f" {letter}" if drawn < COMMA_SHARE / 2 else f". {letter.upper()}"

        return _COMMA.sub(comma, _WORD.sub(word, text))

    def _find_others(self, word: str) -> tuple[list[str], list[int]]:
        """Words that sound similar, and their cumulative frequencies."""
        parts = _parts(self._sounds.get(word, ()))
        found = sorted({other for part in parts for other in self._alike.get(part, ())} - {word})
        return found, list(accumulate(self._counts[other] for other in found))


def _parts(sound: Sound) -> set[Sound]:
    """The sound, and the sound without each phoneme: similar sounds have one of these in common."""
    return {sound, *(sound[:i] + sound[i + 1 :] for i in range(len(sound)))} - {()}
