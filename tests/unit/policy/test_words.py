"""Words are cut at borders that the hypothesis itself shows."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.policies.base import Token
from earvoice.policy.words import CommitTime, StageTimings, Word, committable_count, join_pieces
from tests.fakes import make_hypothesis, make_token

HOUSE = [make_token(5, "Haus"), make_token(6, "tür", starts=False), make_token(7, "auf")]


NOW = CommitTime(0.0, 0.0, StageTimings(*[0.0] * 11))


def word_of(utf8: bytes, log_probability: float = 0.0) -> Word:
    return Word(utf8, True, 0, 0, 0, NOW, log_probability)


class Assembler:
    """Commits tokens one lot after the other."""

    def __init__(self) -> None:
        self.held: Word | None = None

    def commit(self, tokens, *, flush: bool) -> list[tuple[str, bool]]:
        """Text of each word that is complete, and whether it begins one."""
        pieces = [Word(token.text, token.starts_word, 0, 0, 0, NOW) for token in tokens]
        held = [self.held] if self.held else []
        words, self.held = join_pieces([*held, *pieces], flush=flush)
        return [(word.text, word.starts_word) for word in words]


def assemble(tokens, *, flush: bool, assembler: Assembler | None = None) -> list[tuple[str, bool]]:
    return (assembler or Assembler()).commit(tokens, flush=flush)


def count_to_word_border(hypothesis, new_token_count: int, *, final: bool = False) -> int:
    return committable_count(hypothesis, new_token_count, "word", final=final)


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
    assembler = Assembler()
    assert assemble([make_token(5, "Hallo")], flush=True, assembler=assembler) == [("Hallo", True)]
    pieces = [make_token(6, ",", starts=False), make_token(7, "wie")]
    assert assemble(pieces, flush=True, assembler=assembler) == [(",", False), ("wie", True)]


def test_text_waits_for_the_end_of_its_word():
    """Without a flush the last word is held until the next one begins."""
    assembler = Assembler()
    assert assemble(HOUSE[:1], flush=False, assembler=assembler) == []
    assert assemble(HOUSE[1:], flush=False, assembler=assembler) == [("Haustür", True)]
    assert assemble([], flush=True, assembler=assembler) == [("auf", True)]


def test_characters_split_over_pieces_are_joined():
    """A byte-fallback model writes one character in several tokens."""
    halves = [(6, "ü".encode()[:1]), (7, "ü".encode()[1:])]
    middle = [Token(token, text, starts_word=False, attention=(1.0,)) for token, text in halves]
    tokens = [make_token(5, "T"), *middle, make_token(8, "r", starts=False)]
    assert assemble(tokens, flush=True) == [("Tür", True)]


@pytest.mark.parametrize("mark", [",", "“", "…", "。", "«", "–"])  # noqa: RUF001 - as written
def test_punctuation_says_nothing_about_how_sure_a_word_is(mark):
    """Beyond ASCII neither; letters do, and so does part of a character."""
    assert not word_of(mark.encode()).is_spoken
    assert word_of(b"Hallo", -0.1).joined(word_of(mark.encode(), -3.0)).log_probability == -0.1


@pytest.mark.parametrize("text", ["ü".encode(), "你".encode(), "ü".encode()[:1], "ं".encode(), b"3"])
def test_what_is_heard_counts(text):
    """Letters, their marks and figures of any script, whole or in part."""
    assert word_of(text).is_spoken


@given(
    st.lists(st.tuples(st.text("abc", min_size=1, max_size=3), st.booleans()), max_size=20),
    st.lists(st.integers(0, 20), max_size=4),
)
def test_the_text_does_not_depend_on_how_commits_are_cut(pieces, cuts):
    """Held back in any way, the same words come out in the same order."""
    tokens = [make_token(i, text, starts=starts) for i, (text, starts) in enumerate(pieces)]
    borders = sorted({0, len(tokens), *(cut for cut in cuts if cut < len(tokens))})
    assembler = Assembler()
    pieced: list[tuple[str, bool]] = []
    for start, end in itertools.pairwise(borders):
        pieced += assemble(tokens[start:end], flush=False, assembler=assembler)
    pieced += assemble([], flush=True, assembler=assembler)
    assert pieced == assemble(tokens, flush=True)
