"""Each policy does what its paper says, on small cases made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from earvoice.policies import AlignAtt, Edatt, HoldN, LocalAgreement, Offline, SharedPrefix
from earvoice.policies.base import Decision, Heard, Hypothesis
from earvoice.policy.words import committable_count
from tests.fakes import make_hypothesis, make_token

HEARD = Heard(duration_ms=1000, state_count=10)


def words(*ids: int):
    return [make_token(token_id) for token_id in ids]


def edatt(**changes) -> Edatt:
    return Edatt(**{"alpha": 0.5, "lambda_states": 2, "attention_layer": 1} | changes)


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


@pytest.mark.parametrize(
    ("probability", "stops"),
    [(1.0, False), (0.9, False), (0.45, False), (0.3, True), (1e-9, True)],
)
def test_edatt_awaits_more_where_it_is_unsure(probability: float, stops: bool):
    """λ 1, patience 4: three states at half of 0.9, four at a third; it looks at the fourth."""
    token = make_token(5, attention=[0.3, 0.6, 0.0, 0.0, 0.0, 0.1])
    token = replace(token, log_probability=math.log(probability))
    assert edatt(lambda_states=1, patience_states=4).is_decided(token, 0) == stops
    assert not edatt(lambda_states=1).is_decided(token, 0)


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
    policy = HoldN(n=2)
    assert policy.decide(HEARD, make_hypothesis(words(5, 6, 7))).new_token_count == 1
    assert policy.decide(HEARD, make_hypothesis(words(5), prefix=[4])).new_token_count == 0


def test_local_agreement_needs_n_hypotheses():
    """LA-3 is silent for two segments, then commits what all three share."""
    policy = LocalAgreement(n=3)
    counts = [
        policy.decide(HEARD, make_hypothesis(words(*ids))).new_token_count
        for ids in ([5, 6, 7], [5, 6, 8], [5, 6, 9])
    ]
    assert counts == [0, 0, 2]


def test_local_agreement_compares_so_many_tokens_behind_the_prefix():
    """With two, the decoder is halted at the third; what is agreed on from there comes later."""
    policy = LocalAgreement(n=2, compared_tokens=2)
    tokens = words(5, 6, 7, 8)
    halts = [policy.is_decided(token, index) for index, token in enumerate(tokens)]
    assert halts == [False, False, True, True]
    counts = []
    for prefix, rest in (([], tokens), ([], tokens), ([5, 6], tokens[2:]), ([5, 6], tokens[2:])):
        counts.append(policy.decide(HEARD, make_hypothesis(rest, prefix=prefix)).new_token_count)
    assert counts == [0, 2, 0, 2]


def test_a_word_of_more_tokens_than_are_compared_is_committed():
    """It is compared to its end, which the beginning of the next word tells."""
    policy = LocalAgreement(n=2, compared_tokens=2)
    long = [make_token(5), *(make_token(6 + index, starts=False) for index in range(4))]
    hypothesis = make_hypothesis([*long, make_token(20)])
    assert policy.decide(HEARD, hypothesis) == Decision(0)
    decision = policy.decide(HEARD, hypothesis)
    assert committable_count(hypothesis, decision.new_token_count, "word") == len(long)


@pytest.mark.parametrize(
    ("held_words", "later", "count"),
    [(None, [], 4), (1, [], 3), (2, [], 1), (3, [], 0), (4, [], 0), (1, words(30, 31), 4)],
)
def test_local_agreement_holds_last_words_of_a_hypothesis(held_words, later, count):
    """Though agreed on; where agreement stops before them nothing else is held."""
    policy = LocalAgreement(n=2, held_words=held_words)
    said = [make_token(5), make_token(6), make_token(7, starts=False), make_token(8)]
    policy.decide(HEARD, make_hypothesis(said))
    assert policy.decide(HEARD, make_hypothesis([*said, *later])).new_token_count == count


def test_local_agreement_forgets_hypotheses_of_another_prefix():
    """After a change of prefix the past says nothing, and agreement starts anew."""
    policy = LocalAgreement(n=2)
    policy.decide(HEARD, make_hypothesis(words(5, 6)))
    assert policy.decide(HEARD, make_hypothesis(words(6), prefix=[9])).new_token_count == 0
    assert policy.decide(HEARD, make_hypothesis(words(6), prefix=[9])).new_token_count == 1


@pytest.mark.parametrize(("tokens", "agreed"), [((9, 7), 0), ((5, 7), 1)])
def test_local_agreement_goes_on_where_history_selection_has_cut(tokens, agreed):
    """Old hypotheses lose the same tokens as the prefix, and then agree or not."""
    policy = LocalAgreement(n=2)
    policy.decide(HEARD, make_hypothesis(words(5, 6), prefix=[9]))
    policy.forget_prefix(1)
    assert policy.decide(HEARD, make_hypothesis(words(*tokens))).new_token_count == agreed


def test_align_att_stops_at_the_first_token_aligned_with_the_newest_states():
    """With f = 2 of five states: the last is dropped, and the two before it are too new."""
    policy = AlignAtt(frames=2, attention_layer=1)
    rows = [[0.6, 0.4, 0.0, 0.0, 0.0], [0.1, 0.5, 0.1, 0.0, 0.3], [0.2, 0.1, 0.3, 0.1, 0.3]]
    tokens = [make_token(5 + index, attention=row) for index, row in enumerate(rows)]
    assert [policy.is_decided(token, i) for i, token in enumerate(tokens)] == [False, False, True]
    assert policy.decide(HEARD, make_hypothesis(tokens)) == Decision(2)


def test_align_att_waits_while_all_states_are_new():
    """With f states or fewer nothing is old enough."""
    policy = AlignAtt(frames=4, attention_layer=1)
    for row in ([0.9, 0.1, 0.0, 0.0, 0.0], [1.0]):
        assert policy.is_decided(make_token(5, attention=row), 0)
    assert not policy.wants_hypothesis(Heard(100, state_count=1))


@pytest.mark.parametrize(("row", "ends"), [([0.9, 0.1, 0.0], True), ([0.1, 0.9, 0.0], False)])
def test_an_early_end_is_tested_as_tokens_are(row, ends: bool):
    """It is committed only when it does not look at the newest audio."""
    policy = AlignAtt(1, 1, allow_early_end=True)
    hypothesis = Hypothesis(
        (), [make_token(5, attention=[1.0, 0.0, 0.0])], make_token(2, attention=row)
    )
    assert policy.decide(HEARD, hypothesis) == Decision(1, ends_utterance=ends)


def beam(*items, prefix=()) -> Hypothesis:
    return Hypothesis(tuple(prefix), words(*items[0]), None, items)


def test_shared_prefix_commits_what_the_whole_beam_shares():
    """SP-1 looks at one beam, after the forced prefix."""
    policy = SharedPrefix(n=1)
    hypothesis = beam([5, 6, 7], [5, 6, 8, 7], [5, 6], prefix=[4])
    assert policy.decide(HEARD, hypothesis) == Decision(2)


def test_shared_prefix_needs_n_beams():
    """SP-2 is silent for a segment, then commits what both beams share."""
    policy = SharedPrefix(n=2)
    assert policy.decide(HEARD, beam([5, 6, 7], [5, 6, 8])) == Decision(0)
    assert policy.decide(HEARD, beam([5, 6, 7], [5, 6, 7])) == Decision(2)


def test_shared_prefix_forgets_beams_of_another_prefix():
    """After a change of prefix agreement starts anew."""
    policy = SharedPrefix(n=2)
    policy.decide(HEARD, beam([5, 6], [5, 7]))
    assert policy.decide(HEARD, beam([6], [6], prefix=[9])) == Decision(0)
    assert policy.decide(HEARD, beam([6], [6], prefix=[9])) == Decision(1)


def test_shared_prefix_refuses_greedy_search():
    """One hypothesis always agrees with itself: that is not the policy asked for."""
    policy = SharedPrefix()
    with pytest.raises(ValueError, match="reads a beam"):
        policy.decide(HEARD, make_hypothesis(words(5)))


def test_offline_never_decodes_before_the_end():
    """Nothing is wanted, nothing is committed."""
    policy = Offline()
    assert not policy.wants_hypothesis(HEARD)
    assert policy.decide(HEARD, make_hypothesis(words(5))) == Decision(0)


@pytest.mark.parametrize("policy", [edatt(), HoldN()], ids=lambda policy: policy.name)
def test_policies_without_memory_refuse_a_foreign_snapshot(policy):
    """A snapshot of another policy must not be taken in silence."""
    policy.restore(policy.snapshot())
    with pytest.raises(ValueError, match="no memory"):
        policy.restore({"history": []})
