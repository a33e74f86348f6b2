"""Guards cut what no policy may commit, and count it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from earvoice.policy.guards import GuardEvidence, Guards
from tests.unit.policy.scripted import make_hypothesis, make_token

ENOUGH = GuardEvidence(
    label_count=8, frame_count=200, source_word_count=4, committed_word_count=0, has_speech=True
)


def allowed(
    evidence: GuardEvidence, ids: list[int], prefix: tuple[int, ...] = ()
) -> tuple[int, dict]:
    guards = Guards()
    hypothesis = make_hypothesis([make_token(token) for token in ids], prefix=prefix)
    allowance = guards.allow(evidence, hypothesis, len(ids))
    assert allowance.guard == "".join(guards.hits)
    return allowance.token_count, dict(guards.hits)


def test_nothing_is_cut_from_a_plain_commit():
    """Three words for four heard pass."""
    assert allowed(ENOUGH, [5, 6, 7]) == (3, {})


@pytest.mark.parametrize(
    "change", [{"label_count": 1}, {"frame_count": 19}, {"has_speech": False}], ids=str
)
def test_nothing_is_committed_without_evidence(change):
    """One label, 190 ms, or no speech: silence."""
    assert allowed(replace(ENOUGH, **change), [5]) == (0, {"evidence": 1})


def test_without_labels_speech_is_evidence():
    """A model without a CTC head tells no labels: enough frames of speech must do."""
    unlabelled = replace(ENOUGH, label_count=0, has_labels=False)
    assert allowed(unlabelled, [5]) == (1, {})
    assert allowed(replace(unlabelled, has_speech=False), [5]) == (0, {"evidence": 1})
    assert allowed(replace(unlabelled, frame_count=19), [5]) == (0, {"evidence": 1})


def test_at_most_twice_the_words_heard_plus_three():
    """One word heard allows five; two are committed already, so three more."""
    few = replace(ENOUGH, source_word_count=1, committed_word_count=2)
    assert allowed(few, [5, 6, 7, 8, 9]) == (3, {"length": 1})


def test_a_loop_is_cut_at_its_fourth_turn():
    """Three repetitions stay, across the prefix too."""
    assert allowed(ENOUGH, [5, 6, 5, 6, 5, 6, 5, 6, 5]) == (7, {"loop": 1})
    assert allowed(ENOUGH, [5, 5], prefix=(5, 5)) == (1, {"loop": 1})
