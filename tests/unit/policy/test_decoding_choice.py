"""Beam, segments and history: what the policy needs, what the client wants, and clashes."""

from __future__ import annotations

import pytest

from earvoice.api.v1 import decision_policy_pb2 as policy_pb
from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.policy.wire.config import effective_config, stream_options
from earvoice.runtime.errors import InvalidFieldError
from tests.unit.policy.test_config import MODEL, config, milliseconds

SCHEDULE = policy_pb.DecisionPolicy(
    frame_schedule={"wait_frames": 100, "stride_frames": 10, "tokens": 1}
)
SHARED_PREFIX = policy_pb.DecisionPolicy(shared_prefix={"n": 1})


def test_the_beam_is_one_unless_the_policy_reads_it():
    """Greedy search by default; five hypotheses where all of them are read."""
    assert stream_options(config(), MODEL).beam_size == 1
    assert stream_options(config(policy=SHARED_PREFIX), MODEL).beam_size == 5
    assert stream_options(config(policy=SHARED_PREFIX, beam_size=2), MODEL).beam_size == 2


def test_a_schedule_dictates_segment_and_initial_wait():
    """Shorter segments than anybody else may have, and the echo asks for the same again."""
    options = stream_options(config(policy=SCHEDULE), MODEL)
    assert (options.segment_ms, options.initial_wait_ms) == (100, 900)
    assert stream_options(effective_config(options, MODEL), MODEL) == options


def test_the_heads_read_are_the_policy_s():
    """Layer and heads go to the decoder with each generation."""
    edatt = policy_pb.EdattPolicy(attention_layer=3, attention_heads=[2, 4])
    options = stream_options(config(policy=policy_pb.DecisionPolicy(edatt=edatt)), MODEL)
    assert (options.attention_layer, options.attention_heads) == (3, (2, 4))
    options = stream_options(config(policy=policy_pb.DecisionPolicy(hold_n={})), MODEL)
    assert (options.attention_layer, options.attention_heads) == (4, ())


def test_history_is_kept_as_asked_for():
    """A number of words, the last sentence, or everything."""
    words = stream_options(config(history_selection=pb.HistorySelection(words=8)), MODEL)
    assert words.history_selection == 8
    sentence = stream_options(
        config(history_selection=pb.HistorySelection(last_sentence=True)), MODEL
    )
    assert sentence.history_selection == "last sentence"
    assert stream_options(config(), MODEL).history_selection is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam_size": 17}, "beam_size = 17 .*1 to 16"),
        ({"beam_size": -2}, "beam_size = -2 .*1 to 16"),
        ({"beam_size": 1, "policy": SHARED_PREFIX}, "beam_size = 1 .*2 to 16"),
        (
            {"policy": SCHEDULE, "segment_duration": milliseconds(800)},
            "segment_duration = '800 ms' .*100 ms, which policy.frame_schedule dictates",
        ),
        (
            {"policy": SCHEDULE, "initial_wait": milliseconds(0)},
            "initial_wait = '0 ms' .*900 ms, which policy.frame_schedule dictates",
        ),
        ({"segment_duration": milliseconds(100)}, "segment_duration = '100 ms' .*200 ms to"),
        ({"initial_wait": milliseconds(11_000)}, "initial_wait = '11000 ms' .*0 ms to 10000 ms"),
        ({"history_selection": pb.HistorySelection(words=201)}, "words = 201 .*1 to 200"),
        ({"history_selection": pb.HistorySelection(words=0)}, "words = 0 .*1 to 200"),
        ({"history_selection": pb.HistorySelection()}, "history_selection = 'nothing'"),
        ({"history_selection": pb.HistorySelection(last_sentence=False)}, "last_sentence = False"),
        (
            {
                "history_selection": pb.HistorySelection(words=5),
                "policy": policy_pb.DecisionPolicy(offline={}),
            },
            "history_selection = 'set' .*policy.offline",
        ),
        (
            {
                "history_selection": pb.HistorySelection(words=5),
                "policy": policy_pb.DecisionPolicy(edatt={"allow_early_end": True}),
            },
            "history_selection = 'set' .*policy.edatt ends utterances",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes, message: str):
    """Field, value and what is allowed."""
    with pytest.raises(InvalidFieldError, match=message):
        stream_options(config(**changes), MODEL)
