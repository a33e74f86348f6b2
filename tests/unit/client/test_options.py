"""Options on the wire and back."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.client.options import (
    CatchUp,
    CommitUnit,
    Endpointing,
    HistorySelection,
    TranslationOptions,
    TranslationUpdate,
    read_config,
    write_config,
    write_update,
)
from earvoice.policies import HoldN
from earvoice.runtime.audio_format import WORDS, AudioFormat, SoundEncoding
from tests.unit.client.policies import POLICY


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({"target_languages": "de"}, r"target_languages = 'de' .* such as \('de',\)"),
        ({"policy": "edatt"}, r"policy = 'edatt' .* such as parse_policy\('edatt'\)"),
        ({"catch_up": "every_segment"}, "catch_up = 'every_segment' .* merge, every-segment"),
        ({"commit_unit": "words"}, "commit_unit = 'words' .*allowed: word, token"),
        ({"segment_ms": 800.0}, r"segment_ms = 800\.0 .*allowed: a whole number"),
        ({"beam_size": "4"}, "beam_size = '4' .*allowed: a whole number"),
        ({"beam_size": 0}, "beam_size = 0 .*allowed: 1 to 16"),
        ({"stall_timeout_s": 0}, "stall_timeout_s = 0 .*allowed: more than 0"),
    ],
)
def test_what_cannot_be_written_is_told_at_once(choices, told):
    """By the option's name, before a session is asked for."""
    with pytest.raises(ValueError, match=told):
        TranslationOptions(**{"target_languages": ("de",), **choices})


def test_an_updates_policy_is_no_text_either():
    """It is read by the caller, who can be told what is wrong with it."""
    with pytest.raises(ValueError, match=r"such as parse_policy\('edatt:alpha=0.2'\)"):
        TranslationUpdate(policy="edatt:alpha=0.2")


MILLISECONDS = st.none() | st.integers(0, 30_000)
OPTIONS = st.builds(
    TranslationOptions,
    target_languages=st.lists(st.sampled_from(["de", "es", "pt-BR"])).map(tuple),
    audio=st.builds(
        AudioFormat,
        encoding=st.sampled_from(get_args(SoundEncoding)),
        sample_rate_hz=st.integers(8_000, 48_000),
        channel_count=st.integers(1, 2),
    )
    | st.just(WORDS),
    source_language=st.sampled_from(["", "en"]),
    model=st.sampled_from(["", "m"]),
    policy=st.none() | POLICY,
    segment_ms=MILLISECONDS,
    initial_wait_ms=MILLISECONDS,
    catch_up=st.none() | st.sampled_from(get_args(CatchUp)),
    commit_unit=st.none() | st.sampled_from(get_args(CommitUnit)),
    endpointing=st.builds(Endpointing, st.booleans(), MILLISECONDS, MILLISECONDS, MILLISECONDS),
    interim=st.booleans(),
    transcript=st.booleans(),
    stage_timings=st.booleans(),
    disable_guards=st.booleans(),
    traceparent=st.sampled_from(["", "00-1-2-01"]),
    beam_size=st.none() | st.integers(1, 16),
    history_selection=st.none() | st.builds(HistorySelection, st.none() | st.integers(1, 200)),
    hypotheses=st.booleans(),
    target_lag_ms=MILLISECONDS,
)


@given(OPTIONS)
def test_options_survive_the_wire(options):
    """What is written is read back, whatever was left open."""
    assert read_config(write_config(options)) == options


def test_what_is_left_open_stays_unset():
    """The server fills in its own defaults, so nothing may be sent in their place."""
    config = write_config(TranslationOptions(("de",)))
    assert config == api.StreamingConfig(
        audio_encoding="AUDIO_ENCODING_LINEAR16",
        sample_rate_hertz=16_000,
        audio_channel_count=1,
        target_language_codes=["de"],
    )


def test_a_policy_without_parameters_is_still_chosen():
    """An empty message in a oneof counts."""
    config = write_config(TranslationOptions(("de",), policy=HoldN()))
    assert config.policy.WhichOneof("policy") == "hold_n"


def test_pacing_is_not_on_the_wire():
    """Only this side knows how it sends."""
    options = TranslationOptions(("de",), paced=True)
    assert read_config(write_config(options)) == replace(options, paced=False)


def test_an_update_says_only_what_changes():
    """What it leaves open stays as it was on the server."""
    assert write_update(TranslationUpdate()) == api.StreamingUpdate()
    update = write_update(TranslationUpdate(policy=HoldN(3), segment_ms=1200, beam_size=5))
    assert update == api.StreamingUpdate(
        policy={"hold_n": {"n": 3}},
        segment_duration={"seconds": 1, "nanos": 200_000_000},
        beam_size=5,
    )
