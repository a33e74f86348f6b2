"""Word error rate, BLEU and lagging."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.evaluation.word_errors import count_errors
from earvoice.training.metric import Score, bleu, word_error_rate

WORDS = st.lists(st.sampled_from("abc"), max_size=8)


@pytest.mark.parametrize(
    ("hypothesis", "reference", "edits"),
    [("", "a b", 2), ("a b c", "a b c", 0), ("a x c d", "a b c", 2), ("b", "a b c", 2)],
)
def test_edit_distance(hypothesis: str, reference: str, edits: int) -> None:
    """Substitutions, insertions and deletions count one each."""
    assert count_errors(hypothesis.split(), reference.split()) == edits


@given(WORDS, WORDS, WORDS)
def test_edit_distance_is_a_distance(a: list[str], b: list[str], c: list[str]) -> None:
    """It is symmetric, zero for equals, and detours are never shorter."""
    assert count_errors(a, b) == count_errors(b, a)
    assert count_errors(a, a) == 0
    assert count_errors(a, c) <= count_errors(a, b) + count_errors(b, c)


def test_word_error_rate_weighs_by_length() -> None:
    """Errors are summed before they are divided by the words of all references."""
    assert word_error_rate(["x", "a b c"], ["y", "a b c"]) == pytest.approx(1 / 4)


def test_bleu_of_a_perfect_translation() -> None:
    """The reference itself gets 100 and no brevity penalty."""
    value, brevity, signature = bleu(["das ist ein kleines Haus"], ["das ist ein kleines Haus"])
    assert value == pytest.approx(100.0)
    assert brevity == 1.0
    assert "version" in signature


def test_scores_without_translation_show_no_bleu() -> None:
    """A set of transcribed speech has a word error rate only."""
    assert "BLEU" not in str(Score("ljspeech", 2, 0.5))
    assert "BLEU 3.0" in str(Score("chat", 2, 0.5, 3.0, 0.9))
