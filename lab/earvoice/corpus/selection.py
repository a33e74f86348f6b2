"""Which sentence pairs the corpus holds: filters, de-duplication, and the dev sentences."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from earvoice.corpus.sentence import Sentence
from earvoice.corpus.spoken import spoken_form, transcript

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    Split = Literal["train", "dev"]

_CHAT = "customer-chat.{split}.conversation-role-en-de.tsv"
_RESTAURANT = "restaurant.{split}.dialogue-turn-en-de.tsv"
_TATOEBA = "tatoeba.train.en-{language}.tsv"
_DEV_WORDS = 4
_DEV_TATOEBA_WORDS = 8
_KEY = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Selection:
    """What is taken from the texts.

    Attributes:
        tatoeba_sentences: how many Tatoeba sentences train holds.
        tatoeba_minimum_words: shorter Tatoeba sentences are left out.
        maximum_words: longer sentences of any source are left out.
        minimum_length_ratio: characters of a translation over English ones; outside, the pair
            is dropped, because some restaurant turns are shifted by a sentence.
        maximum_length_ratio: see `minimum_length_ratio`.
        dev_sentences: dev sentences of each domain, of four words or more.
        tatoeba_group: this many Tatoeba sentences in a row share a voice.
        seed: seed of every draw.
    """

    tatoeba_sentences: int = 14_000
    tatoeba_minimum_words: int = 4
    maximum_words: int = 40
    minimum_length_ratio: float = 0.55
    maximum_length_ratio: float = 2.2
    dev_sentences: int = 200
    tatoeba_group: int = 5
    seed: int = 1


@dataclass(frozen=True)
class Pair:
    """An English sentence and its translations as they stand in the source files.

    A translation that no file holds is empty; one of the two is there.
    """

    domain: str
    group: str
    speaker: str
    english: str
    german: str = ""
    spanish: str = ""


def comparison_key(english: str) -> str:
    """Return what two sentences share when they differ in case and punctuation only."""
    return _KEY.sub(" ", english.lower()).strip()


def fits(english: str, translation: str, selection: Selection) -> bool:
    """Tell whether the lengths of a pair can belong to one meaning.

    Short sentences vary freely ("Hi." / "Grüß Gott!"), so 12 characters are added to both.
    """
    if not transcript(spoken_form(english)) or not translation.strip():
        return False
    if len(english.split()) > selection.maximum_words:
        return False
    ratio = (len(translation) + 12) / (len(english) + 12)
    return selection.minimum_length_ratio <= ratio <= selection.maximum_length_ratio


def read_chat(text: Path, split: Split) -> list[Pair]:
    """Read customer-service dialogues, in the order of the conversation."""
    return [
        Pair("chat", conversation, role, english, german)
        for conversation, role, english, german in _rows(text / _CHAT.format(split=split), 4)
    ]


def read_restaurant(text: Path, split: Split) -> list[Pair]:
    """Read restaurant-search user turns, in the order of the dialogue."""
    return [
        Pair("restaurant", f"restaurant-{dialogue}", "user", english, german)
        for dialogue, _, english, german in _rows(text / _RESTAURANT.format(split=split), 4)
    ]


def read_tatoeba(text: Path, selection: Selection) -> list[Pair]:
    """Read Tatoeba in a seeded order, at most one translation of a sentence in each language.

    The files are sorted by length: shuffled, neighbours make varied joined inputs. Sentences
    with German come first, in the order of that file alone.
    """
    german = _read_translations(text, "de", selection)
    spanish = _read_translations(text, "es", selection)
    pairs = []
    for key in dict.fromkeys((*german, *spanish)):
        english, in_german = german.get(key, ("", ""))
        english_too, in_spanish = spanish.get(key, ("", ""))
        pairs.append(Pair("tatoeba", "", "reader", english or english_too, in_german, in_spanish))
    return pairs


def _read_translations(
    text: Path, language: str, selection: Selection
) -> dict[str, tuple[str, str]]:
    """Return English and its first translation that came up, by comparison key."""
    rows = _rows(text / _TATOEBA.format(language=language), 2)
    random.Random(selection.seed).shuffle(rows)
    first: dict[str, tuple[str, str]] = {}
    for english, translation in rows:
        if len(english.split()) >= selection.tatoeba_minimum_words:
            first.setdefault(comparison_key(english), (english, translation))
    return {key: pair for key, pair in first.items() if fits(*pair, selection)}


def without_repeats(pairs: Iterable[Pair], taken: set[str]) -> list[Pair]:
    """Keep the first pair of each English sentence that is not in `taken`; `taken` grows."""
    kept = []
    for pair in pairs:
        key = comparison_key(pair.english)
        if key not in taken:
            taken.add(key)
            kept.append(pair)
    return kept


def select(text: Path, selection: Selection) -> list[Sentence]:
    """Return the corpus: train sentences, and dev sentences that train never holds.

    No sentence of any dev file is in train, whether it became a dev sentence or not. Tatoeba
    sentences with both translations are spoken before others.
    """
    dev_chat, dev_restaurant = read_chat(text, "dev"), read_restaurant(text, "dev")
    taken = {comparison_key(pair.english) for pair in (*dev_chat, *dev_restaurant)}
    tatoeba = read_tatoeba(text, selection)
    tatoeba = [pair for pair in tatoeba if comparison_key(pair.english) not in taken]
    dev_tatoeba = _choose_dev_tatoeba(tatoeba, selection)
    taken.update(comparison_key(pair.english) for pair in dev_tatoeba)
    tatoeba.sort(key=lambda pair: not (pair.german and pair.spanish))

    train: list[Pair] = []
    for pairs in (read_chat(text, "train"), read_restaurant(text, "train")):
        train += without_repeats((p for p in pairs if fits_pair(p, selection)), taken)
    train += _grouped(without_repeats(tatoeba, taken)[: selection.tatoeba_sentences], selection)
    dev = [*_sample_dev(dev_chat, train, selection), *_sample_dev(dev_restaurant, train, selection)]
    dev += _grouped(dev_tatoeba, selection)
    return [*_sentences(train, "train"), *_sentences(dev, "dev")]


def select_texts(text: Path, selection: Selection, sentences: list[Sentence]) -> list[Sentence]:
    """Return the pairs that nobody speaks, for training on text: Tatoeba's other sentences.

    No sentence of any dev file, and none that `sentences` holds. Their keys are others than those
    of `sentences`.
    """
    taken = {comparison_key(row.spoken) for row in sentences}
    for pair in (*read_chat(text, "dev"), *read_restaurant(text, "dev")):
        taken.update((comparison_key(pair.english), comparison_key(spoken_form(pair.english))))
    rows = _sentences(_grouped(read_tatoeba(text, selection), selection), "train", "text")
    return [row for row in rows if comparison_key(row.spoken) not in taken]


def held_out(text: Path, selection: Selection) -> list[Sentence]:
    """Return all sentences of the dev files, and the Tatoeba sentences kept from train.

    In the order of the conversations, each English sentence once.
    """
    taken: set[str] = set()
    pairs: list[Pair] = []
    for dev in (read_chat(text, "dev"), read_restaurant(text, "dev")):
        pairs += without_repeats((pair for pair in dev if fits_pair(pair, selection)), taken)
    rows = [row for row in select(text, selection) if row.split == "dev"]
    return [*_sentences(pairs, "dev"), *(row for row in rows if row.domain == "tatoeba")]


def fits_pair(pair: Pair, selection: Selection) -> bool:
    """Apply `fits` to a pair."""
    return fits(pair.english, pair.german, selection)


def _choose_dev_tatoeba(pairs: list[Pair], selection: Selection) -> list[Pair]:
    """Take long sentences with German, and as many again with Spanish alone.

    The first are the same whatever the Spanish file holds: a network that was trained before it
    came has not seen them either.
    """
    long_enough = [pair for pair in pairs if len(pair.english.split()) >= _DEV_TATOEBA_WORDS]
    with_german = [pair for pair in long_enough if pair.german][: selection.dev_sentences]
    spanish_alone = [pair for pair in long_enough if not pair.german][: selection.dev_sentences]
    return with_german + spanish_alone


def _sample_dev(pairs: list[Pair], train: list[Pair], selection: Selection) -> list[Pair]:
    """Draw dev sentences of four words or more, whole dialogues first come first served."""
    taken = {comparison_key(pair.english) for pair in train}
    pairs = without_repeats((p for p in pairs if fits_pair(p, selection)), taken)
    long_enough = [pair for pair in pairs if len(pair.english.split()) >= _DEV_WORDS]
    return long_enough[: selection.dev_sentences]


def _grouped(pairs: list[Pair], selection: Selection) -> list[Pair]:
    size = selection.tatoeba_group
    return [replace(pair, group=f"tatoeba-{index // size}") for index, pair in enumerate(pairs)]


def _sentences(pairs: list[Pair], split: Split, name: str = "") -> list[Sentence]:
    sentences = []
    for index, pair in enumerate(pairs):
        spoken = spoken_form(pair.english)
        sentences.append(
            Sentence(
                key=f"{pair.domain}-{name or split}-{index:05d}",
                split=split,
                domain=pair.domain,
                group=f"{split}-{pair.group}",
                speaker=pair.speaker,
                spoken=spoken,
                transcript=transcript(spoken),
                german=" ".join(pair.german.split()),
                spanish=" ".join(pair.spanish.split()),
            )
        )
    return sentences


def _rows(path: Path, columns: int) -> list[list[str]]:
    """Read a tab-separated file.

    Raises:
        ValueError: a line has another number of columns.
    """
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        row = line.split("\t")
        if len(row) != columns:
            message = f"{path}:{number}: {len(row)} columns, expected {columns}"
            raise ValueError(message)
        rows.append(row)
    return rows
