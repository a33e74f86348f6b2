"""Which words of texts and of their translations belong together, by counting."""

import pytest

from earvoice.corpus.texts import Pair
from earvoice.models.lexicon import Entry
from earvoice.training.lexicon import MOST_TIMES, lexicon_of, translation_shares

pytestmark = pytest.mark.torch

TEXTS = [
    ("The shark eats.", "Der Hai frisst."),
    ("A shark sleeps.", "Ein Hai schläft."),
    ("The dog sleeps.", "Der Hund schläft."),
    ("A dog eats.", "Ein Hund frisst."),
    ("Does the dog sleep?", "Schläft der Hund?"),
    ("Sharks swim.", "Haie schwimmen."),
    ("Dogs swim.", "Hunde schwimmen."),
    ("Sharks eat.", "Haie fressen."),
]


def pairs(texts: list[tuple[str, str]], language: str = "de") -> list[Pair]:
    return [Pair("made up", english, "train", {language: text}) for english, text in texts]


def test_words_that_stand_opposite_each_other_are_translations() -> None:
    """Numbers of times count; words are in the case in which they stand within a sentence."""
    entries = lexicon_of(pairs(TEXTS))["de"]
    best = {word: entry.translations[0][0] for word, entry in entries.items()}
    assert best.items() >= {
        "shark": "Hai", "dog": "Hund", "sharks": "Haie", "dogs": "Hunde", "swim": "schwimmen",
        "sleeps": "schläft",
    }.items()  # fmt: skip
    assert entries["dog"].times == 3
    for entry in entries.values():
        assert sum(share for _, share in entry.translations) == pytest.approx(1.0)
        assert list(entry.translations) == sorted(entry.translations, key=lambda own: -own[1])


def test_each_language_is_counted_for_itself() -> None:
    spanish = pairs([("Sharks.", "Tiburones.")] * 3, "es")
    table = lexicon_of([*pairs(TEXTS), *spanish])
    assert table["es"] == {"sharks": Entry(3, (("Tiburones", 1.0),))}
    assert table["de"] == lexicon_of(pairs(TEXTS))["de"]
    assert lexicon_of([]) == {}


def test_words_that_the_network_knows_are_left_out() -> None:
    texts = pairs([("and so", "und so")] * (MOST_TIMES + 1) + [("and sharks", "und Haie")])
    assert lexicon_of(texts)["de"].keys() == {"sharks"}


def test_shares_are_those_of_model_1() -> None:
    """Of one pair everything is equally likely; another pair tells (Brown 1993)."""
    once = translation_shares([(["a", "b"], ["x", "y"])])
    assert once["a"]["x"][0] == pytest.approx(0.5)
    told = translation_shares([(["a", "b"], ["x", "y"]), (["b"], ["y"])])
    assert told["a"]["x"][0] > 0.7
    assert told["b"]["y"][0] > 0.7
    for found in told.values():
        assert sum(share for share, _ in found.values()) == pytest.approx(1.0, abs=0.02)


def test_a_language_of_which_nothing_can_be_counted_has_no_words() -> None:
    assert lexicon_of(pairs([("...", "???"), ("word " * 50, "Wort")])) == {"de": {}}
