"""Pieces, their text, and where words begin."""

import pytest

from earvoice.models.errors import ModelError
from earvoice.models.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from tests.tiny_model import TARGET_TEXT, train_sentencepiece

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("text", TARGET_TEXT)
def test_text_survives(target_model: bytes, text: str) -> None:
    """Text to ids and back is the same text, and its bytes join to the same."""
    vocabulary = Vocabulary(target_model)
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    assert b"".join(map(vocabulary.text_bytes, ids)).decode() == " " + text


def test_words_begin_where_there_is_a_space(target_model: bytes) -> None:
    """As many pieces start a word as there are words."""
    vocabulary = Vocabulary(target_model)
    ids = vocabulary.encode(TARGET_TEXT[0])
    assert sum(map(vocabulary.starts_word, ids)) == len(TARGET_TEXT[0].split())
    assert all(vocabulary.text(i).startswith(" ") == vocabulary.starts_word(i) for i in ids)


def test_specials_and_tags_are_silent(target_model: bytes) -> None:
    """Specials and language tags write nothing and start no word."""
    plain = Vocabulary(target_model)
    tagged = Vocabulary(target_model, ["<lang:de>", "<lang:es>"])
    tag = tagged.id_of("<lang:es>")
    assert tag == len(plain) + 1
    assert len(tagged) == len(plain) + 2
    for index in (BOS, PAD, EOS, UNK, tag):
        assert tagged.is_silent(index)
        assert tagged.text_bytes(index) == b""
        assert not tagged.starts_word(index)


def test_bytes_make_characters() -> None:
    """Characters that the vocabulary lacks are written byte by byte, and read as characters."""
    vocabulary = Vocabulary(train_sentencepiece(TARGET_TEXT, byte_fallback=True))
    ids = vocabulary.encode("die Tür")
    assert "<0xC3>" in [vocabulary.pieces[index] for index in ids]
    assert vocabulary.decode(ids) == "die Tür"
    half = [vocabulary.id_of("<0xC3>"), vocabulary.id_of("▁d")]
    assert vocabulary.decode(half) == "\N{REPLACEMENT CHARACTER} d"


def test_pieces_must_be_text(target_model: bytes) -> None:
    """A SentencePiece model with a piece that is no UTF-8 is refused."""
    with pytest.raises(ModelError, match="not a SentencePiece model: 'utf-8' codec"):
        Vocabulary(target_model.replace("▁".encode(), b"\xff\xff\xff"))


def test_what_is_not_there_is_refused(target_model: bytes) -> None:
    """Unknown pieces, ids out of range and files that are no model are named."""
    vocabulary = Vocabulary(target_model)
    with pytest.raises(ModelError, match="not in the vocabulary"):
        vocabulary.id_of("<lang:fr>")
    with pytest.raises(ModelError, match="piece id is -1"):
        vocabulary.text(-1)
    with pytest.raises(ModelError, match="not a SentencePiece model"):
        Vocabulary(b"no model")
