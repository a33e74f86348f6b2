"""Each policy does what its paper says, on small cases made by hand."""

from __future__ import annotations

import pytest

from earvoice.policy.decisions.base import Decision, Heard
from earvoice.policy.decisions.edatt import EdattParameters, EdattPolicy
from earvoice.policy.decisions.hold_n import HoldNParameters, HoldNPolicy
from earvoice.policy.decisions.local_agreement import (
    LocalAgreementParameters,
    LocalAgreementPolicy,
)
from earvoice.policy.decisions.wait_k import WaitKParameters, WaitKPolicy
from tests.unit.policy.scripted import make_hypothesis, make_token

HEARD = Heard(duration_ms=1000, state_count=10)


def words(*ids: int):
    return [make_token(token_id) for token_id in ids]


def edatt(**changes) -> EdattPolicy:
    return EdattPolicy(
        EdattParameters(**{"alpha": 0.5, "lambda_states": 2, "attention_layer": 1} | changes)
    )


def test_edatt_drops_the_last_state_before_it_looks():
    """Attention on the last state alone never stops a token."""
    assert edatt().recent_attention([0.1, 0.0, 0.0, 0.9]) == 0.0


def test_edatt_scales_by_the_euclidean_norm_or_the_sum():
    """The l2 scale divides 0.3 + 0.4 by 0.5; l1 divides by 0.7."""
    row = [0.0, 0.3, 0.4, 0.3]
    assert edatt().recent_attention(row) == pytest.approx(1.4)
    assert edatt(normalization="l1").recent_attention(row) == pytest.approx(1.0)


def test_edatt_stops_at_the_first_token_that_looks_at_the_newest_audio():
    """Everything before that token is committed, it and its followers are not."""
    tokens = [
        make_token(5, attention=[0.9, 0.05, 0.0, 0.05]),
        make_token(6, attention=[0.0, 0.5, 0.4, 0.1]),
        make_token(7, attention=[0.9, 0.05, 0.0, 0.05]),
    ]
    policy = edatt()
    assert [policy.is_decided(token, i) for i, token in enumerate(tokens)] == [False, True, False]
    assert policy.decide(HEARD, make_hypothesis(tokens)) == Decision(1)


def test_edatt_reads_on_with_one_state():
    """With the last state dropped nothing is left to look at."""
    assert not edatt().wants_hypothesis(Heard(100, state_count=1))
    assert edatt().wants_hypothesis(Heard(100, state_count=2))


@pytest.mark.parametrize(("allowed", "ends"), [(False, False), (True, True)])
def test_edatt_commits_an_early_end_only_when_allowed(allowed: bool, ends: bool):
    """The released agents end early; the default reads on."""
    tokens = [make_token(5, attention=[0.9, 0.05, 0.0, 0.05])]
    decision = edatt(allow_early_end=allowed).decide(HEARD, make_hypothesis(tokens))
    assert decision == Decision(1, ends_utterance=ends)


def test_hold_n_holds_back_n_tokens():
    """Hold-2 commits all but two, and never a negative number."""
    policy = HoldNPolicy(HoldNParameters(n=2))
    assert policy.decide(HEARD, make_hypothesis(words(5, 6, 7))).new_token_count == 1
    assert policy.decide(HEARD, make_hypothesis(words(5), prefix=[4])).new_token_count == 0


def test_local_agreement_needs_n_hypotheses():
    """LA-3 is silent for two segments, then commits what all three share."""
    policy = LocalAgreementPolicy(LocalAgreementParameters(n=3))
    counts = [
        policy.decide(HEARD, make_hypothesis(words(*ids))).new_token_count
        for ids in ([5, 6, 7], [5, 6, 8], [5, 6, 9])
    ]
    assert counts == [0, 0, 2]


def test_local_agreement_forgets_hypotheses_of_another_prefix():
    """After a change of prefix the past says nothing, and agreement starts anew."""
    policy = LocalAgreementPolicy(LocalAgreementParameters(n=2))
    policy.decide(HEARD, make_hypothesis(words(5, 6)))
    assert policy.decide(HEARD, make_hypothesis(words(6), prefix=[9])).new_token_count == 0
    assert policy.decide(HEARD, make_hypothesis(words(6), prefix=[9])).new_token_count == 1


def test_wait_3_writes_its_first_word_when_the_fourth_is_begun():
    """Fixed detection counts a word every 280 ms."""
    policy = WaitKPolicy(WaitKParameters(k=3))
    assert not policy.wants_hypothesis(Heard(3 * 280, 10))
    assert policy.wants_hypothesis(Heard(4 * 280, 10))
    decision = policy.decide(Heard(4 * 280, 10), make_hypothesis(words(5, 6, 7)))
    assert decision == Decision(1)


def test_inclusive_wait_k_is_one_word_earlier():
    """The papers disagree by one word; both are there."""
    assert WaitKPolicy(WaitKParameters(k=3, inclusive=True)).wants_hypothesis(Heard(3 * 280, 10))


def test_wait_k_takes_all_pieces_of_a_word():
    """The word ends before the next word-initial piece."""
    tokens = [make_token(5), make_token(6, starts=False), make_token(7)]
    policy = WaitKPolicy(WaitKParameters(k=1))
    assert policy.decide(Heard(560, 10), make_hypothesis(tokens)) == Decision(2)


def test_wait_k_counts_words_as_written_even_if_the_hypothesis_is_shorter():
    """Three are due, one is there: the next segment owes nothing."""
    policy = WaitKPolicy(WaitKParameters(k=1))
    policy.decide(Heard(4 * 280, 10), make_hypothesis(words(5)))
    assert policy.due_word_count(Heard(4 * 280, 10)) == 0


def test_adaptive_wait_k_counts_the_partial_word_by_default():
    """The released code counts it; without it one word less is heard."""
    heard = Heard(0, 10, complete_word_count=3, has_partial_word=True)
    assert WaitKPolicy(WaitKParameters(detection="adaptive")).source_word_count(heard) == 4
    strict = WaitKParameters(detection="adaptive", count_partial_word=False)
    assert WaitKPolicy(strict).source_word_count(heard) == 3


@pytest.mark.parametrize(("choice", "ends"), [("stop", False), ("avoid", False), ("commit", True)])
def test_wait_k_treats_an_early_end_as_told(choice, ends: bool):
    """Only ``commit`` ends the utterance; ``avoid`` tells the decoder never to end."""
    policy = WaitKPolicy(WaitKParameters(k=1, end_while_reading=choice))
    assert policy.forbids_end_while_reading == (choice == "avoid")
    decision = policy.decide(Heard(9 * 280, 10), make_hypothesis(words(5)))
    assert decision == Decision(1, ends_utterance=ends)


@pytest.mark.parametrize(
    "policy", [edatt(), HoldNPolicy(HoldNParameters())], ids=lambda policy: policy.name
)
def test_policies_without_memory_refuse_a_foreign_snapshot(policy):
    """A snapshot of another policy must not be taken in silence."""
    policy.restore(policy.snapshot())
    with pytest.raises(ValueError, match="no memory"):
        policy.restore({"history": []})
