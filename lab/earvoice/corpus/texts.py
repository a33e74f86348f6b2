"""The sentence pairs: sources, filters, de-duplication, held-out splits.

Translations are keyed by the BCP-47 tags in the files' names: ``NAME.en-TAG.tsv``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

from earvoice.corpus.recipe import (
    DEV_SENTENCES,
    HELD_OUT_SENTENCES,
    LEAST_DEV_WORDS,
    MOST_SENTENCES,
)

Split = Literal["train", "dev", "test"]

_DIALOGUE = re.compile(
    r"(?P<source>.+)\.(?P<split>train|dev)\.(conversation-role|dialogue-turn)-en-(?P<tag>\w+)\.tsv"
)
_PAIRS = re.compile(r"(?P<source>.+?)(\.train)?\.en-(?P<tag>\w+)\.tsv")
_KEY = re.compile(r"[^a-z0-9]+")

_SMALL_I = re.compile(r"(?<![\w.'-])i(?![\w-]|\.\w)")
_OK = re.compile(r"\bok(ay)?\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[A-Za-z]{2}[.!?]) (?<!etc\. )(?<!vs\. )")
_SENTENCE_START = re.compile(rf"(^[\"'(]?|{_SENTENCE_END.pattern})[a-z]")
_VERB = r"(is|are|was|were|do|does|did|have|has|can|could|will|would|should|shall|may)"
_SOMEBODY = r"(i|you|he|she|it|we|they|there|this|that|these|those|the|my|your|our|his|her|any)"
_ASKING = re.compile(
    rf"(who|where|when|why|what|which|how)('s\b|'re\b| {_VERB}\b)"
    rf"|(what|which|how)( [\w']+){{0,3}} {_VERB}\b"
    r"|(what (kind|sort|type|size|time)|how (many|much|about)|what about|which one)\b"
    rf"|{_VERB}(n?'t)? {_SOMEBODY}\b",
    re.IGNORECASE,
)
"""Recognises a question whose question mark is missing."""

MAX_WORDS = 40
LENGTH_RATIOS = (0.5, 2.4)
"""Allowed ratio of characters, translation to English, with 12 added to both."""
_PLAIN_QUOTES = str.maketrans("\u2019\u201c\u201d", '\'""')
_CODE = re.compile(r"[<>{}=_\\|$#*~^]|https?:|%[sd@(]|\.\w{2,4}/|\(\)")


@dataclass
class Pair:
    """An English sentence and its translations."""

    source: str
    english: str
    split: Split
    translations: dict[str, str] = field(default_factory=dict)
    group: str = ""
    """Sentences of one group follow each other in a conversation."""
    speaker: str = ""


def comparison_key(english: str) -> str:
    """A key that is equal for sentences that differ only in case and punctuation."""
    return _KEY.sub(" ", english.lower()).strip()


def read_pairs(folder: Path, seed: int = 1) -> list[Pair]:
    """Every sentence once, with all its translations; held-out sentences are in no other split.

    Args:
        folder: of the texts, with a subfolder ``more``.
        seed: decides the order of a file's rows, and so which are kept and held out.
    """
    pairs: dict[str, Pair] = {}
    for pair in _all_rows(folder, seed):
        known = pairs.setdefault(comparison_key(pair.english), pair)
        if known is not pair:
            known.split = max(known.split, pair.split, key=("train", "dev", "test").index)
            for tag, text in pair.translations.items():
                known.translations.setdefault(tag, text)
    return list(pairs.values())


def _all_rows(folder: Path, seed: int) -> Iterator[Pair]:
    files = sorted(folder.glob("*.tsv"), key=lambda path: "tatoeba" in path.name)
    for path in files:
        if match := _DIALOGUE.fullmatch(path.name):
            yield from _dialogues(path, match)
        else:
            yield from _listed(path, seed)
    for path in sorted((folder / "more").glob("*.tsv")):
        yield from _listed(path, seed)


def _dialogues(path: Path, match: re.Match[str]) -> Iterator[Pair]:
    split: Split = "dev" if match["split"] == "dev" else "train"
    for group, speaker, english, translation in _rows(path, 4):
        if fits(english, translation):
            translations = {match["tag"]: tidy(translation)}
            conversation = f"{match['source']}/{split}/{group}"
            yield Pair(match["source"], tidy(english), split, translations, conversation, speaker)


def _listed(path: Path, seed: int) -> Iterator[Pair]:
    match = _PAIRS.fullmatch(path.name)
    if match is None:
        message = f"{path.name} is not named NAME.en-TAG.tsv"
        raise ValueError(message)
    source = match["source"]
    rows = [row for row in _rows(path, 2) if fits(*row)]
    # By the English sentences alone: languages that have the same ones hold out the same. Where a
    # language lacks some, it holds out others as well, and `read_pairs` the ones of every language.
    generator = random.Random(f"{seed}/{source}")
    order = {key: generator.random() for key in sorted({comparison_key(row[0]) for row in rows})}
    rows.sort(key=lambda row: order[comparison_key(row[0])])
    ordered = sorted(order, key=order.__getitem__)
    test = set(ordered[: HELD_OUT_SENTENCES.get(source, 0)])
    long_enough = (key for key in ordered if len(key.split()) >= LEAST_DEV_WORDS)
    dev = set(islice(long_enough, DEV_SENTENCES.get(source, 0)))
    for english, translation in rows[: MOST_SENTENCES.get(source)]:
        key = comparison_key(english)
        split: Split = "test" if key in test else "dev" if key in dev else "train"
        yield Pair(source, tidy(english), split, {match["tag"]: tidy(translation)})


def tidy(text: str) -> str:
    return " ".join(text.translate(_PLAIN_QUOTES).split())


def captioned(english: str) -> str:
    """Hastily typed text, written like a caption: capitals, "I", "okay", a mark at the end."""
    text = _SMALL_I.sub("I", english)
    text = _OK.sub("okay", text)
    text = _SENTENCE_START.sub(lambda match: match[0].upper(), text)
    if text[-1].isalnum():
        text += "?" if _ASKING.match(_SENTENCE_END.split(text)[-1]) else "."
    return text


def fits(english: str, translation: str) -> bool:
    """Whether a pair is plausible as speech and its translation."""
    if (
        not comparison_key(english)
        or not translation.strip()
        or _CODE.search(english + translation)
    ):
        return False
    if len(english.split()) > MAX_WORDS:
        return False
    least, most = LENGTH_RATIOS
    return least <= (len(translation) + 12) / (len(english) + 12) <= most


def _rows(path: Path, columns: int) -> list[list[str]]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        row = line.split("\t")
        if len(row) != columns:
            message = f"{path.name}:{number}: {len(row)} columns; allowed: {columns}"
            raise ValueError(message)
        rows.append(row)
    return rows
