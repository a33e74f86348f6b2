"""Laws of every policy's decisions, over random hypotheses."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from earvoice.policies.base import DecisionPolicy, Hypothesis
from tests.unit.policy.every_policy import SEGMENTS, RandomUtterance, each_policy


def check_decision(utterance: RandomUtterance, policy: DecisionPolicy) -> None:
    """Decide a segment: only what is shown is committed, behind what was."""
    before, shown = list(utterance.committed), utterance.hypothesis
    decision = utterance.decide(policy)
    assert 0 <= decision.new_token_count <= len(shown.tokens)
    assert shown.token_ids[: len(utterance.committed)] == utterance.committed
    assert utterance.committed[: len(before)] == before
    if decision.ends_utterance:
        assert shown.ended
        assert decision.new_token_count == len(shown.tokens)


@each_policy
@given(SEGMENTS)
def test_no_policy_commits_what_it_was_not_shown(parameters, segments):
    """Counts stay within the hypothesis, and committed text only grows."""
    utterance, policy = RandomUtterance(), parameters.begin()
    for segment in segments:
        utterance.hear(segment)
        check_decision(utterance, policy)


@each_policy
@given(SEGMENTS)
def test_a_restored_policy_decides_the_same(parameters, segments):
    """restore(snapshot()) changes nothing, through JSON and at every segment."""
    plain, copied = RandomUtterance(), RandomUtterance()
    first, second = parameters.begin(), parameters.begin()
    for segment in segments:
        plain.hear(segment)
        copied.hear(segment)
        assert plain.decide(first) == copied.decide(second)
        memory = json.loads(json.dumps(second.snapshot()))
        second = parameters.begin()
        second.restore(memory)
        assert second.snapshot() == first.snapshot()


@each_policy
@given(SEGMENTS)
def test_halting_early_changes_no_decision(parameters, segments):
    """What comes after the token at which a policy halts would not have been committed."""
    whole, halted = RandomUtterance(), RandomUtterance()
    first, second = parameters.begin(), parameters.begin()
    for segment in segments:
        whole.hear(segment)
        halted.hear(segment)
        if second.wants_hypothesis(halted.heard):
            halted.hypothesis = until_decided(second, halted.hypothesis)
        assert whole.decide(first) == halted.decide(second)
        assert first.snapshot() == second.snapshot()


def until_decided(policy: DecisionPolicy, hypothesis: Hypothesis) -> Hypothesis:
    """As much as a decoder shows that the policy may halt."""
    for index, token in enumerate(hypothesis.tokens):
        if policy.is_decided(token, index):
            return replace(hypothesis, tokens=hypothesis.tokens[: index + 1], end=None)
    return hypothesis


@each_policy
@given(SEGMENTS, SEGMENTS, st.data())
def test_a_policy_may_enter_a_running_utterance(parameters, before, after, data):
    """Whatever another policy has committed, it commits only what it is shown."""
    utterance = RandomUtterance()
    for segment in before:
        utterance.hear(segment)
        count = data.draw(st.integers(0, len(segment.tokens)))
        utterance.committed += [token.token_id for token in segment.tokens[:count]]
    policy = parameters.begin()
    policy.take_over(data.draw(st.integers(0, 9)), len(utterance.committed))
    for segment in after:
        utterance.hear(segment)
        check_decision(utterance, policy)


@each_policy
@given(SEGMENTS, st.data())
def test_a_policy_survives_a_forgotten_beginning(parameters, segments, data):
    """History selection shortens the prefix; counts run on, and nothing is said twice."""
    utterance, policy = RandomUtterance(), parameters.begin()
    for segment in segments:
        utterance.hear(segment)
        forgotten = data.draw(st.integers(0, len(utterance.committed)))
        if forgotten:
            policy.forget_prefix(forgotten)
        shown = utterance.hypothesis
        utterance.hypothesis = replace(shown, prefix=shown.prefix[forgotten:])
        decision = utterance.decide(policy)
        assert 0 <= decision.new_token_count <= len(shown.tokens)
