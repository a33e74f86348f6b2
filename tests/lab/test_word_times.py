"""Words of a transcript in the frames of a recording: what a hand finds too."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from earvoice.evaluation.log import SpokenWord
from earvoice.studies.word_times import differences_ms
from earvoice.training.ctc import align

pytestmark = pytest.mark.torch

A, B, BLANK = 0, 1, 2


def log_probs(*likely: int) -> np.ndarray:
    """[T, 3]: in each frame one label has 0.8, the others 0.1."""
    rows = np.full((len(likely), 3), 0.1)
    rows[np.arange(len(likely)), likely] = 0.8
    return np.log(rows)


def test_labels_lie_where_they_are_likely() -> None:
    """A run of one label is one span; blanks belong to none."""
    found = align(log_probs(BLANK, A, A, BLANK, B, BLANK), [A, B])
    assert found == [(1, 2), (4, 4)]


def test_a_label_that_is_nowhere_likely_has_a_place() -> None:
    """All labels are said: b takes one of the frames, the one that costs least."""
    rows = log_probs(A, A, A)
    rows[2] = np.log([0.5, 0.4, 0.1])
    assert align(rows, [A, B]) == [(0, 1), (2, 2)]


def test_repeated_labels_need_a_blank_between() -> None:
    """Without the blank two would be read as one."""
    assert align(log_probs(A, A, A), [A, A]) == [(0, 0), (2, 2)]
    assert align(log_probs(A, BLANK, A, A), [A, A]) == [(0, 0), (2, 3)]
    with pytest.raises(ValueError, match="2 labels do not fit 2 frames; allowed: 3"):
        align(log_probs(A, A), [A, A])


def test_nothing_said_has_no_place() -> None:
    """A text without labels is no error."""
    assert align(log_probs(BLANK), []) == []


def test_differences_are_of_the_same_words() -> None:
    """Recordings whose words were cut otherwise are left out."""
    found = [[SpokenWord("a", 0.0, 80.0)], [SpokenWord("b", 0.0, 40.0)]]
    known = [[SpokenWord("a", 0.0, 100.0)], [SpokenWord("b", 0, 50), SpokenWord("c", 50, 90)]]
    assert differences_ms(found, known).tolist() == [-20.0]
