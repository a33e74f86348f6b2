"""A stream's config: every default is filled in, and what contradicts itself is refused."""

from __future__ import annotations

from typing import get_args

import pytest
from google.protobuf import duration_pb2
from hypothesis import given
from hypothesis import strategies as st

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.policies import Edatt, HoldN, LocalAgreement, WaitK
from earvoice.policy.stream_options import (
    CommitUnit,
    Endpointing,
    StreamOptions,
)
from earvoice.policy.wire.config import effective_config, stream_options
from earvoice.runtime.audio_format import AudioFormat, SoundEncoding
from earvoice.runtime.errors import InvalidFieldError
from tests.fakes import described_model

MODEL = described_model()
LAYER = 4

# Alpha is a 32-bit float on the wire.
EDATT = st.builds(
    Edatt,
    st.floats(0, 1, width=32),
    st.integers(1, 64),
    st.integers(1, 6),
    st.sampled_from(["l1", "l2"]),
    st.booleans(),
)
OTHERS = st.one_of(
    st.builds(LocalAgreement, st.integers(2, 64)),
    st.builds(HoldN, st.integers(0, 64)),
    st.builds(
        WaitK,
        st.integers(1, 64),
        st.sampled_from(["fixed", "adaptive"]),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["stop", "avoid", "commit"]),
    ),
)
OPTIONS = st.builds(
    StreamOptions,
    audio_format=st.builds(
        AudioFormat,
        st.sampled_from(get_args(SoundEncoding)),
        st.integers(8000, 48_000),
        st.integers(1, 2),
    ),
    target_language_code=st.just("de"),
    policy=OTHERS,
    attention_layer=st.just(LAYER),
    segment_ms=st.integers(200, 10_000),
    initial_wait_ms=st.integers(0, 10_000),
    merges_segments=st.booleans(),
    commit_unit=st.sampled_from(get_args(CommitUnit)),
    endpointing=st.none()
    | st.builds(
        Endpointing,
        st.integers(200, 5000),
        st.integers(20_000, 30_000),
        st.integers(5000, 10_000),
    ),
    sends_interim_results=st.booleans(),
    sends_source_transcript=st.booleans(),
    sends_stage_timings=st.booleans(),
    uses_guards=st.booleans(),
    beam_size=st.integers(1, 16),
    history_selection=st.none() | st.just("last sentence") | st.integers(1, 200),
    sends_hypotheses=st.booleans(),
    target_lag_ms=st.none() | st.integers(500, 20_000),
).filter(lambda options: not (options.history_selection and options.policy.ends_early))


def config(**changes) -> pb.StreamingConfig:
    return pb.StreamingConfig(
        **{"audio_encoding": types_pb2.AUDIO_ENCODING_LINEAR16, "sample_rate_hertz": 16_000}
        | changes
    )


def milliseconds(count: int) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromMilliseconds(count)
    return duration


def test_what_is_left_out_takes_the_model_s_value():
    """EDAtt as calibrated, the model's segment, its languages."""
    options = stream_options(config(), MODEL)
    assert options == StreamOptions(
        AudioFormat("linear16", 16_000, 1), "de", Edatt(0.25, 2, 4), 4, 800
    )


@given(OPTIONS)
def test_the_effective_config_says_all(options: StreamOptions):
    """Sent back as a request, it asks for exactly the same session."""
    assert stream_options(effective_config(options, MODEL), MODEL) == options


@given(EDATT)
def test_the_effective_config_has_every_parameter_of_edatt(parameters: Edatt):
    """Its layer is the one that is read."""
    options = StreamOptions(
        AudioFormat("alaw", 8000, 1),
        "de",
        parameters,
        parameters.attention_layer,
        800,
    )
    assert stream_options(effective_config(options, MODEL), MODEL) == options


def test_an_utterance_is_at_least_as_long_as_its_first_segment():
    """Otherwise speech would go on past the length at which it is to be cut."""
    endpointing = pb.Endpointing(max_utterance=milliseconds(5000))
    waiting = {"segment_duration": milliseconds(1000), "endpointing": endpointing}
    assert stream_options(config(**waiting, initial_wait=milliseconds(4000)), MODEL)
    with pytest.raises(InvalidFieldError, match=r"endpointing.max_utterance = '5000 ms'.*5001 ms"):
        stream_options(config(**waiting, initial_wait=milliseconds(4001)), MODEL)
    endpointing.disabled = True
    assert stream_options(config(**waiting, initial_wait=milliseconds(4001)), MODEL)


def test_a_pause_in_a_sentence_is_the_longer_one():
    """Twice as long, unless another is asked for; never shorter."""

    def of(**changes: int) -> Endpointing | None:
        durations = {name: milliseconds(count) for name, count in changes.items()}
        asked = config(endpointing=pb.Endpointing(**durations))
        return stream_options(asked, MODEL).endpointing

    assert of() == Endpointing()
    assert of(pause=300) == Endpointing(300, pause_in_sentence_ms=600)
    assert of(pause_in_sentence=600) == Endpointing(pause_in_sentence_ms=600)
    with pytest.raises(InvalidFieldError, match=r"pause_in_sentence = '599 ms'.*600 ms"):
        of(pause_in_sentence=599)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"commit_unit": 9}, "commit_unit = 9 is not allowed; allowed: COMMIT_UNIT_UNSPECIFIED, "),
        ({"catch_up": 7}, "CATCH_UP_MERGE, CATCH_UP_EVERY_SEGMENT"),
        ({"audio_encoding": 0}, "audio_encoding = 'AUDIO_ENCODING_UNSPECIFIED' is not allowed"),
        ({"audio_encoding": 0}, "allowed: AUDIO_ENCODING_LINEAR16, "),
    ],
)
def test_choices_are_named_as_on_the_wire(changes, message):
    """Whoever reads the error finds the name in the protos."""
    with pytest.raises(InvalidFieldError, match=message):
        stream_options(config(**changes), MODEL)
