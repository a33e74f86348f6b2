"""What labels spell, held against the sum over all paths."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from earvoice.models import ctc
from earvoice.models.ctc import Text, likeliest_labels, spelled

pytestmark = pytest.mark.torch

BLANK = 2


def text_probabilities(log_probs: torch.Tensor) -> Counter[Text]:
    """By every path there is."""
    total: Counter[Text] = Counter()
    frames, labels = log_probs.shape
    for path in itertools.product(range(labels), repeat=frames):
        path_log_prob = sum(log_probs[frame, label].item() for frame, label in enumerate(path))
        total[spelled(path, labels - 1)] += math.exp(path_log_prob)
    return total


@given(st.lists(st.tuples(*[st.floats(-3, 3)] * (BLANK + 1)), min_size=1, max_size=5))
def test_no_text_is_likelier_than_what_is_spelled(rows):
    """With a beam of all texts; where no blank is sure enough to divide them."""
    log_probs = torch.tensor(rows).log_softmax(-1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ctc, "BEAM_SIZE", 100)
        patched.setattr(ctc, "SURE_LOG_PROB", 0.0)
        labels = likeliest_labels(log_probs)
    assert len(labels) == len(rows)
    probabilities = text_probabilities(log_probs)
    assert probabilities[spelled(labels, BLANK)] >= 0.999 * max(probabilities.values())


def test_many_unlikely_paths_outweigh_the_likeliest():
    """The best path is blank at every frame; that something was said there is likelier."""
    rows = torch.tensor([[0.4, 0.1, 0.5]] * 3)
    assert rows.argmax(1).tolist() == [BLANK] * 3
    assert spelled(likeliest_labels(rows.log()), BLANK) == (0,)


def test_a_letter_twice_has_a_blank_between():
    """Its labels would be one otherwise."""
    rows = torch.tensor([[0.85, 0.1, 0.05], [0.45, 0.1, 0.45], [0.85, 0.1, 0.05]])
    labels = likeliest_labels(rows.log())
    assert spelled(labels, BLANK) == (0,)
    rows[1] = torch.tensor([0.1, 0.3, 0.6])
    assert likeliest_labels(rows.log()) == [0, BLANK, 0]


def test_two_labels_of_one_text_are_not_placed_side_by_side():
    """Here the likeliest paths of "0" alone would have the second one right after the first."""
    zeros = torch.tensor([0.4643, 0.2014, 0.5776, 0.7548, 0.9942, 0.1418])
    rows = torch.stack((zeros, torch.zeros(6), 1 - zeros), dim=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ctc, "SURE_LOG_PROB", 0.0)
        labels = likeliest_labels(rows.log())
    likeliest, _ = text_probabilities(rows.log()).most_common(1)[0]
    assert spelled(labels, BLANK) == likeliest == (0, 0)


def test_what_is_sure_keeps_its_greedy_labels():
    """Runs of one label, too, and sound without frames has no labels."""
    rows = torch.tensor([[0.95, 0.03, 0.02], [0.92, 0.03, 0.05], [0.01, 0.0, 0.99]])
    assert likeliest_labels(rows.log()) == [0, 0, BLANK]
    assert likeliest_labels(rows[:0].log()) == []


def test_labels_of_which_none_is_likely_still_spell_something():
    """Of very many labels the likeliest may be less likely than what is searched otherwise."""
    log_probs = torch.zeros(3, 5000).log_softmax(1)
    assert len(likeliest_labels(log_probs)) == 3
