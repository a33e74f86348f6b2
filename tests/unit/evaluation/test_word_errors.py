"""Words are compared as captions are judged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.evaluation.quality import count_errors, plain_words, right_words, word_error_rate

WORDS = st.lists(st.sampled_from("abc"), max_size=8)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Well, DON\N{RIGHT SINGLE QUOTATION MARK}T!", ["well", "don't"]),
        ("A well-known “name”.", ["a", "well", "known", "name"]),
        ("In 1,000.5 s, at 12:30.", ["in", "1,000.5", "s", "at", "12:30"]),
        ("Über_alles — ja?", ["über", "alles", "ja"]),
        ("'Tis dogs' day", ["tis", "dogs", "day"]),
        ("Mr. and Mrs. Day", ["mister", "and", "missus", "day"]),
        ("... —", []),
    ],
)
def test_case_and_punctuation_are_no_errors_and_figures_stay(text, words):
    """Lower case; an apostrophe inside a word and a point between figures belong to them."""
    assert plain_words(text) == words


def test_without_blanks_characters_are_counted():
    """As latency counts them."""
    assert plain_words("你好, 世界", "char") == ["你", "好", "世", "界"]
    assert word_error_rate(["你好"], ["你们好"], "zh") == pytest.approx(1 / 3)


@given(WORDS, WORDS)
def test_right_words_are_those_of_an_alignment_with_fewest_errors(hypothesis, reference):
    """As many as can be; they stand in the reference in the same order."""
    right = right_words(hypothesis, reference)
    kept = [word for word, flag in zip(hypothesis, right, strict=True) if flag]
    found = iter(reference)
    assert all(word in found for word in kept)
    errors = count_errors(hypothesis, reference)
    assert max(len(hypothesis), len(reference)) - len(kept) <= errors
    if hypothesis == reference:
        assert all(right)


@pytest.mark.parametrize(
    ("hypothesis", "right"),
    [("a b c", [1, 1, 1]), ("a x c", [1, 0, 1]), ("x a b c", [0, 1, 1, 1]), ("c", [1]), ("x", [0])],
)
def test_a_word_is_right_where_the_reference_has_it(hypothesis, right):
    """A wrong, an added and a missing word."""
    assert right_words(hypothesis.split(), ["a", "b", "c"]) == [bool(flag) for flag in right]


def test_nothing_against_something():
    """Empty texts have errors too."""
    assert count_errors([], ["a"]) == count_errors(["a"], []) == 1
    assert (count_errors([], []), right_words([], ["a"])) == (0, [])
    assert word_error_rate(["a b"], ["A, b. C d"]) == 0.5
