"""Which translations use the familiar "you".

English does not distinguish familiar from formal, and the texts have both: a model trained on them
changes its form of address from sentence to sentence. So the English of familiar translations is
marked (side constraints, Sennrich 2016), and unmarked English is translated formally.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earvoice.corpus.texts import Pair

FAMILIAR_WORDS = {
    "de": r"du|dich|dir|dein\w*|euch|euer|eure\w*",
    "es": r"tú|te|ti|tus?|tuy[oa]s?|contigo|vos|os|vosotr[oa]s|vuestr[oa]s?",
}
"""Familiar pronouns by language."""
FAMILIAR_ENDINGS = {"es": r"(?!\w*mos\b)\w+(?:s|ste)"}
"""Endings of familiar verbs without a pronoun; plurals share them, but occur with any English."""
LEAST_TIMES, LEAST_SHARE = 2, 0.8
"""How many texts must contain a verb, and the share of them whose English must say "you"."""
_YOU = re.compile(r"\byou(?:r|rs|rself|rselves)?\b", re.IGNORECASE)
_FORMAL = re.compile(r"\busted(?:es)?\b", re.IGNORECASE)


def familiar(pairs: Sequence[Pair], tag: str) -> set[int]:
    """The indices of pairs whose translation into a language uses the familiar "you"."""
    if tag not in FAMILIAR_WORDS:
        return set()
    pronoun = _words(FAMILIAR_WORDS[tag])
    verb = _words(FAMILIAR_ENDINGS[tag]) if tag in FAMILIAR_ENDINGS else None
    found, verbs = set(), dict[int, set[str]]()
    every, to_you = Counter[str](), Counter[str]()
    for place, pair in enumerate(pairs):
        text = pair.translations.get(tag, "")
        if pronoun.search(text):
            found.add(place)
        if verb is None:
            continue
        here, says_you = set(verb.findall(text.lower())), _YOU.search(pair.english) is not None
        every.update(here)
        if says_you:
            to_you.update(here)
            if not _FORMAL.search(text):
                verbs[place] = here
    second = {
        word
        for word, times in to_you.items()
        if every[word] >= LEAST_TIMES and times >= LEAST_SHARE * every[word]
    }
    return found | {place for place, here in verbs.items() if here & second}


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)
