"""Laws that hold for every policy and any audio."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earvoice.policy.decisions.base import Heard, Hypothesis
from earvoice.policy.decisions.edatt import EdattParameters
from earvoice.policy.decisions.factory import make_policy
from earvoice.policy.decisions.hold_n import HoldNParameters
from earvoice.policy.decisions.local_agreement import LocalAgreementParameters
from earvoice.policy.decisions.wait_k import WaitKParameters
from tests.unit.policy.running import items_of, run_session, with_options
from tests.unit.policy.scripted import ScriptedDecoder, make_token

PARAMETERS = [
    EdattParameters(0.3, 2, 1),
    EdattParameters(0.3, 2, 1, normalization="l1", allow_early_end=True),
    LocalAgreementParameters(2),
    LocalAgreementParameters(3),
    WaitKParameters(2),
    WaitKParameters(2, detection="adaptive", inclusive=True, end_while_reading="commit"),
    HoldNParameters(2),
]
ROW = st.lists(st.floats(0, 1), min_size=6, max_size=6)
TOKEN = st.builds(
    lambda token_id, starts, row: make_token(token_id, starts=starts, attention=row),
    st.integers(4, 8),
    st.booleans(),
    ROW,
)
SEGMENT = st.tuples(st.lists(TOKEN, max_size=8), st.booleans(), st.integers(0, 12))


def each_policy(test):
    names = [f"{type(p).__name__}-{i}" for i, p in enumerate(PARAMETERS)]
    return pytest.mark.parametrize("parameters", PARAMETERS, ids=names)(test)


def decide_all(policy, segments, *, snapshots: bool):
    """Decide segment after segment and return the committed ids after each."""
    prefix: list[int] = []
    for tokens, ended, words in segments:
        heard = Heard(words * 280.0, 6, words)
        if policy.wants_hypothesis(heard):
            hypothesis = Hypothesis(tuple(prefix), tokens, make_token(2) if ended else None)
            decision = policy.decide(heard, hypothesis)
            prefix = prefix + [t.token_id for t in tokens[: decision.new_token_count]]
            assert 0 <= decision.new_token_count <= len(tokens)
            assert ended or not decision.ends_utterance
        if snapshots:
            memory = json.loads(json.dumps(policy.snapshot()))
            policy = make_policy(policy.parameters)
            policy.restore(memory)
        yield list(prefix)


@each_policy
@given(st.lists(SEGMENT, max_size=6))
def test_no_policy_commits_what_it_was_not_shown(parameters, segments):
    """Counts stay within the hypothesis, and committed text only grows."""
    before: list[int] = []
    for committed in decide_all(make_policy(parameters), segments, snapshots=False):
        assert committed[: len(before)] == before
        before = committed


@each_policy
@given(st.lists(SEGMENT, max_size=6))
def test_a_restored_policy_decides_the_same(parameters, segments):
    """restore(snapshot()) changes nothing, through JSON and at every segment."""
    plain = list(decide_all(make_policy(parameters), segments, snapshots=False))
    assert list(decide_all(make_policy(parameters), segments, snapshots=True)) == plain


def unstable_word(seed: int):
    """Words that change with the audio heard, as a real model's do."""

    def word(number: int, states: int):
        changing = number >= states // 4 - 1
        token_id = 10 + (number * 7 + seed + (states if changing else 0)) % 40
        place = min(number * 4 + seed % 4, states - 1)
        row = tuple(float(i == place) for i in range(states))
        starts = (number + seed) % 3 > 0
        return [make_token(token_id, starts=starts, attention=row)]

    return word


@each_policy
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 100),
    samples=st.integers(0, 60_000),
    cuts=st.lists(st.integers(0, 60_000), max_size=12),
    steps=st.integers(1, 4),
    by_word=st.booleans(),
)
def test_the_text_does_not_depend_on_how_audio_is_cut(
    parameters, seed, samples, cuts, steps, by_word
):
    """EVERY_SEGMENT: any cutting into messages gives the same items, delays included."""
    options = with_options(policy=parameters, commits_words=by_word)
    audio = bytes(samples * 2)
    borders = sorted({0, samples, *(cut for cut in cuts if cut < samples)})
    pieces = [audio[2 * a : 2 * b] for a, b in itertools.pairwise(borders)]

    def items(messages):
        decoder = ScriptedDecoder(word=unstable_word(seed), steps_per_answer=steps)
        return [
            (item.text, item.starts_word, item.utterance, item.delay_samples)
            for item in items_of(run_session(messages, options, decoder=decoder))
        ]

    assert items(pieces) == items([audio] if audio else [])


@each_policy
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 100), samples=st.integers(0, 60_000), merge=st.booleans())
def test_the_forced_prefix_only_grows(parameters, seed, samples, merge):
    """Within an utterance each generation's prefix starts with the one before."""
    decoder = ScriptedDecoder(word=unstable_word(seed))
    options = with_options(policy=parameters, merges_segments=merge, endpointing=None)
    run_session([bytes(samples * 2)] if samples else [], options, decoder=decoder)
    prefixes = [list(request.prefix) for request in decoder.requests]
    for earlier, later in itertools.pairwise(prefixes):
        assert later[: len(earlier)] == earlier
