"""Words as the text and the tokens of the field's tools."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from earvoice.adapter.word_text import RewrittenTokens, TokenWriter, join_words
from earvoice.client.event import CommittedWord


def word(text: str, *, starts: bool = True) -> CommittedWord:
    return CommittedWord(text, starts, "de", 0, 0.0, 1.0, 1.0, 1.0, 1.0)


def test_a_later_piece_stands_right_behind_its_word():
    """Blanks only before what begins a word."""
    assert join_words([word("das"), word("Fenster"), word(".", starts=False)]) == "das Fenster."
    assert join_words([]) == ""


def test_a_later_piece_writes_its_word_anew():
    """Words stay whole: simulstream can take tokens back."""
    writer = TokenWriter()
    assert writer.write([word("das"), word("Fenster")]) == RewrittenTokens((), ("das", "Fenster"))
    assert writer.write([]) == RewrittenTokens((), ())
    pieces = [word(".", starts=False), word("Es")]
    assert writer.write(pieces) == RewrittenTokens(("Fenster",), ("Fenster.", "Es"))
    assert writer.write([word("ist")]) == RewrittenTokens((), ("ist",))


WORDS = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=4), max_size=6)


@given(WORDS)
def test_tokens_are_the_words_however_they_come(released):
    """What is left after all deletions is the text."""
    writer, tokens, words = TokenWriter(), [], []
    for group in released:
        items = [word(text, starts=starts) for text, starts in group]
        words += items
        written = writer.write(items)
        if written.deleted:
            assert tuple(tokens[-len(written.deleted) :]) == written.deleted
            del tokens[-len(written.deleted) :]
        tokens += written.new
    assert " ".join(tokens) == join_words(words)
