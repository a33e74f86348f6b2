"""A text source in the policy service: the same path, in exact words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from earvoice.api.v1 import decision_policy_pb2 as policy_pb
from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.policies import StridedWaitK, WaitK
from earvoice.policy.endpoints import Endpoint, Endpointer
from earvoice.policy.evidence import Evidence, VoiceActivity
from earvoice.policy.wire.config import effective_config, stream_options
from earvoice.runtime.audio_format import WORDS
from earvoice.runtime.errors import InvalidFieldError
from tests.unit.policy.test_config import MODEL, milliseconds
from tests.unit.policy.test_guards import allowed

READER = types_pb2.ModelDescription()
READER.MergeFrom(MODEL)
READER.reads_words = True
READER.default_segment_ms = 250


def words(**changes) -> pb.StreamingConfig:
    chosen = {"audio_encoding": types_pb2.AUDIO_ENCODING_WORDS, "sample_rate_hertz": 4}
    return pb.StreamingConfig(**(chosen | changes))


def heard(count: int, ends: tuple[int, ...] = (), spans: tuple[int, ...] | None = None) -> Evidence:
    """So many words, of which these end sentences."""
    pauses = [(end, end) for end in ends]
    return Evidence(
        (),
        0,
        tuple(range(1, count + 1)) if spans is None else spans,
        count,
        False,
        count,
        25 * count,
        VoiceActivity(True, count, pauses),
    )


def test_words_have_no_pace():
    """Every segment is decided; the effective config says so and asks for the same again."""
    options = stream_options(words(), READER)
    assert (options.audio_format, options.merges_segments) == (WORDS, False)
    assert stream_options(effective_config(options, READER), READER) == options


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"audio_encoding": types_pb2.AUDIO_ENCODING_LINEAR16},
            "audio_encoding = 'AUDIO_ENCODING_LINEAR16' .*allowed: AUDIO_ENCODING_WORDS$",
        ),
        ({"sample_rate_hertz": 16_000}, "sample_rate_hertz = 16000 .*4"),
        ({"audio_channel_count": 2}, "audio_channel_count = 2 .*1"),
        ({"catch_up": pb.CATCH_UP_MERGE}, "catch_up = 'CATCH_UP_MERGE'.*EVERY_SEGMENT"),
        ({"segment_duration": milliseconds(200)}, "segment_duration = '200 ms'.*250 ms"),
    ],
)
def test_what_words_cannot_be_is_refused(changes, message):
    """By the field's name, with what is allowed."""
    with pytest.raises(InvalidFieldError, match=message):
        stream_options(words(**changes), READER)


def test_a_model_that_hears_takes_no_words():
    """Its encodings are named."""
    with pytest.raises(InvalidFieldError, match=r"AUDIO_ENCODING_WORDS' .*AUDIO_ENCODING_ALAW$"):
        stream_options(words(), MODEL)


def test_policies_count_the_words():
    """Wait-k detects none by the clock, and strides are words where nothing else is said."""
    waiting = words(policy=policy_pb.DecisionPolicy(wait_k={"k": 2}))
    assert stream_options(waiting, READER).policy == WaitK(2, "adaptive")
    strided = words(policy=policy_pb.DecisionPolicy(strided_wait_k={"k": 2}))
    assert stream_options(strided, READER).policy == StridedWaitK(2, None, 1)
    timed = words(policy=policy_pb.DecisionPolicy(strided_wait_k={"k": 2, "stride_ms": 500}))
    assert stream_options(timed, READER).policy == StridedWaitK(2, 500)


def test_an_utterance_ends_with_its_sentence():
    """A pause that lasts no time ends it, at once and there; without one it goes on."""
    options = stream_options(words(), READER)
    endpointer = Endpointer.of(options)
    end = endpointer.find_pause(heard(3, ends=(3,)), 0, 3, 3)
    assert end == Endpoint(3, "pause")
    assert endpointer.find_pause(heard(5, ends=(3,)), 0, 5, 2) == end
    assert endpointer.find_pause(heard(3), 0, 3, 0) is None
    whole = Endpointer.of(replace(options, endpointing=None))
    assert whole.find_pause(heard(3, ends=(3,)), 0, 3, 0) is None


def test_pieces_of_a_word_share_its_place():
    """From the end of the word before to its own."""
    evidence = heard(2, spans=(11, 11, 12, 12, 12))
    assert [evidence.span(state, 10) for state in range(5)] == [(10, 11)] * 2 + [(11, 12)] * 3


def test_guards_count_the_words():
    """One word is evidence; at most twice the words and three more are written."""
    assert allowed(heard(1), [5]) == (1, {})
    assert allowed(heard(2), list(range(10, 20))) == (7, {"length": 1})
