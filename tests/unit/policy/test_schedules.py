"""The policies that follow a schedule: wait-k, strided wait-k, and the (k, s, N) schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.policies import FrameSchedule, StridedWaitK, WaitK
from earvoice.policies.base import Decision, Heard, Hypothesis
from earvoice.runtime.parameter import ParameterError
from tests.fakes import make_hypothesis, make_token


def words(*ids: int):
    return [make_token(token_id) for token_id in ids]


def test_wait_3_writes_its_first_word_when_the_fourth_is_begun():
    """Fixed detection counts a word every 280 ms."""
    policy = WaitK(k=3)
    assert not policy.wants_hypothesis(Heard(3 * 280, 10))
    assert policy.wants_hypothesis(Heard(4 * 280, 10))
    decision = policy.decide(Heard(4 * 280, 10), make_hypothesis(words(5, 6, 7)))
    assert decision == Decision(1)


def test_inclusive_wait_k_is_one_word_earlier():
    """The papers disagree by one word; both are there."""
    assert WaitK(k=3, inclusive=True).wants_hypothesis(Heard(3 * 280, 10))


def test_wait_k_takes_all_pieces_of_a_word():
    """The word ends before the next word-initial piece."""
    tokens = [make_token(5), make_token(6, starts=False), make_token(7)]
    policy = WaitK(k=1)
    assert policy.decide(Heard(560, 10), make_hypothesis(tokens)) == Decision(2)


def test_wait_k_counts_words_as_written_even_if_the_hypothesis_is_shorter():
    """Three are due, one is there: the next segment owes nothing."""
    policy = WaitK(k=1)
    policy.decide(Heard(4 * 280, 10), make_hypothesis(words(5)))
    assert policy.due_word_count(Heard(4 * 280, 10)) == 0


def test_adaptive_wait_k_counts_the_partial_word_by_default():
    """The released code counts it; without it one word less is heard."""
    heard = Heard(0, 10, complete_word_count=3, has_partial_word=True)
    assert WaitK(detection="adaptive").source_word_count(heard) == 4
    strict = WaitK(detection="adaptive", count_partial_word=False)
    assert strict.source_word_count(heard) == 3


@pytest.mark.parametrize(("choice", "ends"), [("stop", False), ("avoid", False), ("commit", True)])
def test_wait_k_treats_an_early_end_as_told(choice, ends: bool):
    """Only ``commit`` ends the utterance; ``avoid`` tells the decoder never to end."""
    policy = WaitK(k=1, end_while_reading=choice)
    assert policy.forbids_end_while_reading == (choice == "avoid")
    decision = policy.decide(Heard(9 * 280, 10), make_hypothesis(words(5)))
    assert decision == Decision(1, ends_utterance=ends)


def test_wait_k_goes_on_behind_another_policy():
    """The words of another policy count as written: none is due until k + 1 more are heard."""
    policy = WaitK(k=2)
    policy.take_over(committed_word_count=5, committed_token_count=9)
    assert policy.due_word_count(Heard(7 * 280, 10)) == 0
    assert policy.due_word_count(Heard(8 * 280, 10)) == 1


def test_segments_that_end_on_whole_samples_lose_no_word():
    """At 11111 Hz a boundary of 280 ms is rounded down to 279.99 ms."""
    heard = Heard(3111 * 1000 / 11_111, 10)
    assert WaitK(k=1).source_word_count(heard) == 1


def commit(policy, heard: Heard, committed: list[int], token_count: int = 12) -> int:
    """Show one-token words behind what is committed; return how many the policy commits."""
    full = Heard(
        heard.duration_ms,
        heard.state_count,
        heard.complete_word_count,
        heard.has_partial_word,
        len(committed),
    )
    if not policy.wants_hypothesis(full):
        return 0
    new = words(*range(5, 5 + token_count))
    count = policy.decide(full, Hypothesis(tuple(committed), new)).new_token_count
    committed += [token.token_id for token in new[:count]]
    return count


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=12))
def test_wait_k_and_its_schedule_agree_on_the_same_ctc_sequence(k, counts):
    """Inclusive wait-k over complete words is g(t) with a stride of one word and no catch-up."""
    wait = WaitK(k, "adaptive", inclusive=True, count_partial_word=False)
    strided = StridedWaitK(k, None, stride_words=1)
    waited, followed = [], []
    for complete, partial in counts:
        heard = Heard(0, 10, complete, partial)
        assert commit(wait, heard, waited) == commit(strided, heard, followed)


@given(st.integers(1, 4), st.lists(st.integers(0, 12), max_size=12))
def test_wait_k_writes_when_the_next_word_begins(k, counts):
    """While a word is always unfinished, plain wait-k is g(t) too: both wait for k whole words."""
    wait = WaitK(k, "adaptive")
    strided = StridedWaitK(k, None, stride_words=1)
    waited, followed = [], []
    for complete in counts:
        heard = Heard(0, 10, complete, has_partial_word=True)
        assert commit(wait, heard, waited) == commit(strided, heard, followed)


@pytest.mark.parametrize(
    ("catch_up", "strides"),
    [
        (0.0, [3, 4, 5, 6, 7]),
        (0.5, [3, 3, 4, 4, 5]),
        (1.0, [2, 2, 2, 2, 2]),
        (-0.25, [4, 5, 6, 7, 9]),
    ],
)
def test_catch_up_changes_the_pace(catch_up, strides):
    """g(t)/s of Han 2020, k = 3; a negative catch-up waits for one stride more at t = 1."""
    policy = StridedWaitK(3, 300, catch_up=catch_up)
    assert [policy.required_strides(number) for number in range(1, 6)] == strides


def test_catch_up_is_not_lost_to_rounding():
    """0.29 x 100 is 28.999999999999996 in floats."""
    policy = StridedWaitK(1, 300, catch_up=0.29)
    assert policy.required_strides(100) == 100 - 29


def test_a_stride_in_milliseconds_is_a_clock():
    """3/300: the first token after 900 ms, then one every 300 ms."""
    policy = StridedWaitK(3, 300)
    committed: list[int] = []
    counts = [commit(policy, Heard(ms, 10), committed) for ms in (800, 900, 1100, 1200, 1800)]
    assert counts == [0, 1, 0, 1, 2]


def test_the_strided_policy_halts_at_the_first_token_that_is_not_due():
    """Two are due; the third shows where the second ends."""
    policy = StridedWaitK(1, 300)
    assert policy.wants_hypothesis(Heard(600, 10))
    assert [policy.is_decided(make_token(5), index) for index in range(3)] == [False, False, True]


def test_a_stride_is_time_or_words():
    """Both mean nothing; neither is the default."""
    with pytest.raises(ParameterError, match=r"stride_words = 1 .*allowed: unset beside stride_ms"):
        StridedWaitK(3, 300, 1)
    assert StridedWaitK(3).stride_length_ms == 300


def schedule(*numbers, **changes) -> FrameSchedule:
    return FrameSchedule(*numbers, **changes)


def test_the_frame_schedule_writes_n_tokens_a_step():
    """(100, 20, 2): two tokens after 1 s, then two every 200 ms."""
    policy, committed = schedule(100, 20, 2), []
    counts = [commit(policy, Heard(ms, 40), committed) for ms in (990, 1000, 1200, 1400)]
    assert counts == [0, 2, 2, 2]


def test_merged_steps_are_made_up_for():
    """A late machine that decides once for three steps writes three times N."""
    policy, committed = schedule(100, 20, 2), []
    assert commit(policy, Heard(1400, 40), committed) == 6


def test_a_short_hypothesis_leaves_nothing_over():
    """w_t <= N: what a step could not write is not owed by the next."""
    policy, committed = schedule(100, 20, 3), []
    assert commit(policy, Heard(1000, 40), committed, token_count=1) == 1
    assert commit(policy, Heard(1200, 40), committed) == 3


@pytest.mark.parametrize("policy", [WaitK(k=3), schedule(100, 20, 1)], ids=["wait_k", "frames"])
def test_what_the_guards_did_not_allow_is_not_made_up_for(policy):
    """After a silent beginning a schedule goes on at its pace, without a burst."""
    for index in range(1, 21):
        policy.skip_segment(Heard(200 * index, 40))
    hypothesis = make_hypothesis(words(*range(5, 25)))
    assert policy.decide(Heard(4200, 40), hypothesis).new_token_count == 1


def test_a_token_held_back_at_a_word_border_stays_due():
    """With N = 1 the second piece of a word comes due while the first is still held back."""
    policy = schedule(100, 20, 1)
    hypothesis = make_hypothesis(words(5, 6, 7))
    counts = [
        policy.decide(Heard(ms, 40, committed_token_count=0), hypothesis).new_token_count
        for ms in (1000, 1200, 1400)
    ]
    assert counts == [1, 2, 3]


def test_the_length_ratio_bounds_the_text():
    """At most half as many tokens as states, the prefix included."""
    policy, committed = schedule(100, 20, 4, max_length_ratio=0.5), []
    counts = [commit(policy, Heard(ms, 12), committed) for ms in (1000, 1200, 1400)]
    assert counts == [4, 2, 0]


def test_the_schedule_is_joined_at_its_next_step():
    """Entering an utterance after 5 s does not release what 5 s would have allowed."""
    policy, committed = schedule(100, 20, 2), [5, 6, 7]
    policy.take_over(3, 3)
    assert commit(policy, Heard(5000, 40), committed) == 2
    assert commit(policy, Heard(5200, 40), committed) == 2


def test_the_frame_schedule_sets_the_segments():
    """g(1) = k and every further step s frames."""
    assert FrameSchedule(100, 20, 2).required_segment_ms == (200, 800)


@pytest.mark.parametrize(
    ("policy", "memory", "message"),
    [
        (WaitK(), {"written_word_count": "3"}, "written_word_count = '3'"),
        (WaitK(), {"written_word_count": True}, "is not an integer"),
        (schedule(100, 20, 2), {"written_token_count": 3}, "decided_ms = 'missing'"),
        (schedule(100, 20, 2), {"decided_ms": 800.0}, "written_token_count = None"),
    ],
)
def test_a_memory_that_is_none_is_refused(policy, memory, message):
    """Another policy's snapshot must not be taken in silence."""
    with pytest.raises(ValueError, match=message):
        policy.restore(memory)
