"""Count which words stand opposite each other in texts and their translations."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from earvoice.models.lexicon import WORD, Entry, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from earvoice.corpus.texts import Pair

    Words = Sequence[str]

ROUNDS = 6
"""Of expectation and maximisation; then the shares hardly change any more."""
MOST_WORDS = 45
"""Of a text: in longer ones nearly everything stands opposite everything."""
MOST_TIMES = 1000
"""The network knows words that are more frequent."""
LEAST_STRENGTH, LEAST_OF_BEST, MOST_TRANSLATIONS = 0.01, 0.15, 6
"""A translation is kept if p(translation | word) p(word | translation) is so large, and so large a
share of the word's best."""
LEAST_EXPECTED = 0.9
"""How often it stands opposite the word, at least."""
_BEGINS = re.compile(r"(?:^|[.!?:]\s+)\W*$")


def lexicon_of(pairs: Iterable[Pair]) -> Table:
    """By language, the words that stand in the pairs, with what they are translated as."""
    texts: dict[str, list[tuple[str, str]]] = {}
    for pair in pairs:
        for language, translation in pair.translations.items():
            texts.setdefault(language, []).append((pair.english, translation))
    return {language: _entries(own) for language, own in sorted(texts.items())}


def _entries(texts: Sequence[tuple[str, str]]) -> dict[str, Entry]:
    usual = _usual_case(text for _, text in texts)
    pairs = [(WORD.findall(english.lower()), _cased(text, usual)) for english, text in texts]
    pairs = [pair for pair in pairs if all(0 < len(words) <= MOST_WORDS for words in pair)]
    if not pairs:
        return {}
    times = Counter(word for words, _ in pairs for word in words)
    forth = translation_shares(pairs)
    back = translation_shares([(there, here) for here, there in pairs])
    entries: dict[str, Entry] = {}
    for word, found in sorted(forth.items()):
        if times[word] > MOST_TIMES:
            continue
        strengths = {
            other: share * back[other][word][0]
            for other, (share, expected) in found.items()
            if expected >= LEAST_EXPECTED and word in back.get(other, ())
        }
        least = max(LEAST_STRENGTH, LEAST_OF_BEST * max(strengths.values(), default=0.0))
        kept = sorted(
            ((-strength, other) for other, strength in strengths.items() if strength >= least)
        )[:MOST_TRANSLATIONS]
        if kept:
            total = sum(strength for strength, _ in kept)
            shares = tuple((other, strength / total) for strength, other in kept)
            entries[word] = Entry(times[word], shares)
    return entries


def translation_shares(
    pairs: Sequence[tuple[Words, Words]], least: float = 0.01
) -> Mapping[str, Mapping[str, tuple[float, float]]]:
    """For each word, its translations, by IBM's model 1 (Brown 1993).

    Every word of a translation stems from one of the source's words, or from none; order does not
    matter.

    Args:
        pairs: texts and their translations, none empty.
        least: smaller probabilities are left out.

    Returns:
        The probability of each translation, and how often it is expected to stem from the word.
    """
    sources = {word: 1 + place for place, word in enumerate(_all(here for here, _ in pairs))}
    targets = {word: place for place, word in enumerate(_all(there for _, there in pairs))}
    # Every word of a pair with every word of its translation; 0 stands for none.
    here, there, slots = [], [], []
    slot = 0
    for source, target in pairs:
        own = np.array([0, *(sources[word] for word in source)])
        other = np.array([targets[word] for word in target])
        here.append(np.repeat(own, len(other)))
        there.append(np.tile(other, len(own)))
        slots.append(np.tile(slot + np.arange(len(other)), len(own)))
        slot += len(other)
    place = np.concatenate(slots)
    kinds, kind = np.unique(
        np.concatenate(here) * len(targets) + np.concatenate(there), return_inverse=True
    )
    stems = kinds // len(targets)
    shares = np.ones(len(kinds))
    for _ in range(ROUNDS):
        expected = shares[kind]
        expected /= np.bincount(place, expected)[place]
        counts = np.bincount(kind, expected)
        shares = counts / np.bincount(stems, counts)[stems]
    names, others = [*sources], [*targets]
    found: dict[str, dict[str, tuple[float, float]]] = {}
    kept = (shares >= least) & (stems > 0)
    for code, *numbers in zip(*(x[kept].tolist() for x in (kinds, shares, counts)), strict=True):
        stem, other = divmod(code, len(targets))
        share, expected = numbers
        found.setdefault(names[stem - 1], {})[others[other]] = share, expected
    return found


def _all(texts: Iterable[Words]) -> list[str]:
    return sorted({word for words in texts for word in words})


def _usual_case(texts: Iterable[str]) -> dict[str, str]:
    """How a word is mostly written where no sentence begins, by its lower case."""
    counts = Counter(
        match[0]
        for text in texts
        for match in WORD.finditer(text)
        if not _BEGINS.search(text[: match.start()])
    )
    usual: dict[str, str] = {}
    for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        usual.setdefault(word.lower(), word)
    return usual


def _cased(text: str, usual: Mapping[str, str]) -> list[str]:
    """The words of a text; one that begins a sentence as it is mostly written within one."""
    return [
        usual.get(match[0].lower(), match[0]) if _BEGINS.search(text[: match.start()]) else match[0]
        for match in WORD.finditer(text)
    ]
