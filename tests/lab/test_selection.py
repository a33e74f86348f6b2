"""Which sentence pairs the corpus holds."""

from pathlib import Path

import pytest

from earvoice.corpus.selection import (
    Pair,
    Selection,
    comparison_key,
    fits,
    select,
    select_texts,
    without_repeats,
)
from earvoice.corpus.test_set import held_out_sentences


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A small folder of source texts, with every trap in it."""
    files = {
        "customer-chat.train.conversation-role-en-de.tsv": [
            "d1\tagent\tHow can I help you today?\tWie kann ich Ihnen heute helfen?",
            "d1\tcustomer\tI need a new battery.\tIch brauche eine neue Batterie.",
            "d1\tcustomer\tI NEED a new battery!\tIch brauche eine neue Batterie!",
        ],
        "customer-chat.dev.conversation-role-en-de.tsv": [
            "d2\tcustomer\tPlease book the blue car.\tBitte buchen Sie das blaue Auto.",
            "d2\tcustomer\tYes.\tJa.",
        ],
        "restaurant.train.dialogue-turn-en-de.tsv": [
            "0\t0\tOkay, what is the next one after that.  And the address, please?\tOkay.",
        ],
        "restaurant.dev.dialogue-turn-en-de.tsv": [
            "1\t0\tI want some cheap food.\tIch will billiges Essen.",
        ],
        "tatoeba.train.en-de.tsv": [
            "Please book the blue car!\tBuche bitte das blaue Auto!",
            "The dog sleeps under the old table all day.\tDer Hund schläft den ganzen Tag.",
            "She reads a book.\tSie liest ein Buch.",
            "She reads a book.\tSie liest in einem Buch.",
            "Hi.\tHallo!",
        ],
        "tatoeba.train.en-es.tsv": [
            "She reads a book.\tElla lee un libro.",
            "Please book the blue car.\tReserva el coche azul, por favor.",
            "The cat sleeps on the new chair all night.\tEl gato duerme en la silla nueva.",
            "The bird sings under the old roof all day.\tEl pájaro canta bajo el tejado.",
        ],
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def test_pairs_of_unequal_length_are_dropped() -> None:
    """A long question with a one-word answer is a shifted pair."""
    selection = Selection()
    assert fits("Hi.", "Grüß Gott!", selection)
    assert not fits("Okay, what is the next one after that?", "Okay.", selection)
    assert not fits("...", "...", selection)


def test_repeats_differ_in_more_than_case_and_punctuation() -> None:
    """The first of several equal sentences is kept, and those that were taken are not."""
    pairs = [Pair("chat", "", "", text, "x") for text in ("Yes!", "yes", "No.", "Maybe")]
    kept = without_repeats(pairs, {comparison_key("NO")})
    assert [pair.english for pair in kept] == ["Yes!", "Maybe"]


def test_no_dev_sentence_is_in_train(text: Path) -> None:
    """A sentence of a dev file stays out of train even where another corpus holds it."""
    rows = select(text, Selection(dev_sentences=1))
    train = {comparison_key(row.spoken) for row in rows if row.split == "train"}
    dev = {comparison_key(row.spoken) for row in rows if row.split == "dev"}
    assert not train & dev
    assert comparison_key("Please book the blue car.") not in train
    assert "she reads a book" in train
    assert len([row for row in rows if "battery" in row.spoken]) == 1


def test_selection_is_repeatable(text: Path) -> None:
    """The same seed gives the same sentences under the same keys."""
    assert select(text, Selection(seed=5)) == select(text, Selection(seed=5))
    keys = [row.key for row in select(text, Selection())]
    assert len(keys) == len(set(keys))


def test_texts_are_what_nobody_speaks(text: Path) -> None:
    """Text pairs hold neither spoken nor dev sentences."""
    selection = Selection(tatoeba_sentences=0, dev_sentences=1)
    rows = select(text, selection)
    texts = select_texts(text, selection, rows)
    assert "She reads a book." in [row.spoken for row in texts]
    assert not {row.spoken for row in texts} & {row.spoken for row in rows}
    assert not {row.key for row in texts} & {row.key for row in rows}


def test_a_sentence_of_both_files_has_both_translations(text: Path) -> None:
    """German and Spanish of one English sentence come together, spoken once."""
    rows = select(text, Selection(dev_sentences=1))
    book = [row for row in rows if row.spoken == "She reads a book."]
    assert [row.spanish for row in book] == ["Ella lee un libro."]
    assert book[0].german in {"Sie liest ein Buch.", "Sie liest in einem Buch."}
    assert [book[0].translation(language) for language in ("de", "es")] == [
        book[0].german,
        book[0].spanish,
    ]


def test_spanish_has_dev_sentences_of_its_own(text: Path) -> None:
    """They have no German: a network that only ever saw the German file never saw them."""
    rows = select(text, Selection(dev_sentences=1))
    alone = [row for row in rows if row.split == "dev" and row.spanish and not row.german]
    assert len(alone) == 1
    assert alone[0].spoken.startswith(("The cat", "The bird"))


def test_no_held_out_sentence_is_in_train(text: Path) -> None:
    """Test sets take all of the dev files, in either language, and nothing that training has."""
    rows = select(text, Selection())
    trained = {comparison_key(row.spoken) for row in rows if row.split == "train"}
    trained |= {comparison_key(row.spoken) for row in select_texts(text, Selection(), rows)}
    held = [comparison_key(row.spoken) for row in held_out_sentences(text, Selection.seed)]
    assert "please book the blue car" in held
    assert "the cat sleeps on the new chair all night" in held
    assert len(held) == len(set(held))
    assert not trained & set(held)


def test_a_broken_line_is_named(text: Path) -> None:
    """A line with another number of columns stops the selection with its place."""
    path = text / "tatoeba.train.en-de.tsv"
    path.write_text("one column\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"tatoeba.*:1: 1 columns, expected 2"):
        select(text, Selection())
