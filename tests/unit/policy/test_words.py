"""Words are cut at borders that the hypothesis itself shows."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from earvoice.policy.decisions.base import Token
from earvoice.policy.words import CommittedToken, WordAssembler, count_to_word_border
from tests.unit.policy.scripted import make_hypothesis, make_token

HOUSE = [make_token(5, "Haus"), make_token(6, "tür", starts=False), make_token(7, "auf")]


def assemble(tokens, *, flush: bool, assembler=None) -> list[tuple[str, bool]]:
    assembler = assembler or WordAssembler()
    words = assembler.commit([CommittedToken(token, None) for token in tokens], flush=flush)
    return [(word.text, word.starts_word) for word in words]


def test_a_word_is_not_cut_inside():
    """One piece of two is cut back to none; two are a word because the next one starts."""
    assert count_to_word_border(make_hypothesis(HOUSE), 1) == 0
    assert count_to_word_border(make_hypothesis(HOUSE), 2) == 2


def test_the_last_word_counts_only_when_the_hypothesis_has_ended():
    """A hypothesis that was halted may go on inside its last word."""
    assert count_to_word_border(make_hypothesis(HOUSE), 3) == 3
    assert count_to_word_border(make_hypothesis(HOUSE, ended=False), 3) == 2
    assert count_to_word_border(make_hypothesis(HOUSE, ended=False), 3, final=True) == 3


def test_a_later_piece_is_an_item_of_its_own():
    """Punctuation after a released word comes with starts_word = False."""
    assembler = WordAssembler()
    assert assemble([make_token(5, "Hallo")], flush=True, assembler=assembler) == [("Hallo", True)]
    pieces = [make_token(6, ",", starts=False), make_token(7, "wie")]
    assert assemble(pieces, flush=True, assembler=assembler) == [(",", False), ("wie", True)]


def test_text_waits_for_the_end_of_its_word():
    """Without a flush the last word is held until the next one begins."""
    assembler = WordAssembler()
    assert assemble(HOUSE[:1], flush=False, assembler=assembler) == []
    assert assemble(HOUSE[1:], flush=False, assembler=assembler) == [("Haustür", True)]
    assert assemble([], flush=True, assembler=assembler) == [("auf", True)]


def test_characters_split_over_pieces_are_joined():
    """A byte-fallback model writes one character in several tokens."""
    halves = [(6, "ü".encode()[:1]), (7, "ü".encode()[1:])]
    middle = [Token(token, text, starts_word=False, attention=(1.0,)) for token, text in halves]
    tokens = [make_token(5, "T"), *middle, make_token(8, "r", starts=False)]
    assert assemble(tokens, flush=True) == [("Tür", True)]


@given(
    st.lists(st.tuples(st.text("abc", min_size=1, max_size=3), st.booleans()), max_size=20),
    st.lists(st.integers(0, 20), max_size=4),
)
def test_the_text_does_not_depend_on_how_commits_are_cut(pieces, cuts):
    """Held back in any way, the same words come out in the same order."""
    tokens = [make_token(i, text, starts=starts) for i, (text, starts) in enumerate(pieces)]
    borders = sorted({0, len(tokens), *(cut for cut in cuts if cut < len(tokens))})
    assembler = WordAssembler()
    pieced: list[tuple[str, bool]] = []
    for start, end in itertools.pairwise(borders):
        pieced += assemble(tokens[start:end], flush=False, assembler=assembler)
    pieced += assemble([], flush=True, assembler=assembler)
    assert pieced == assemble(tokens, flush=True)
