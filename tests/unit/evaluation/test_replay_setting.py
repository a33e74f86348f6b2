"""Settings of a replay as text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.client.options import TranslationOptions
from earvoice.evaluation.replay.setting import ReplaySetting, parse_settings
from earvoice.policies import AlignAtt, Edatt, LocalAgreement

policies = st.one_of(
    st.builds(
        Edatt,
        alpha=st.none() | st.sampled_from((0.03, 0.2, 0.6)),
        attention_heads=st.sampled_from(((), (1,), (2, 4))),
    ),
    st.builds(AlignAtt, frames=st.integers(1, 16)),
    st.builds(LocalAgreement, n=st.integers(2, 4)),
)
settings = st.builds(
    ReplaySetting,
    policy=policies,
    segment_ms=st.none() | st.integers(200, 2000),
    initial_wait_ms=st.none() | st.integers(1, 2000),
    beam_size=st.none() | st.integers(1, 8),
    attention=st.sampled_from(("one-layer", "mean-over-layers", "with-the-last-state")),
    uses_drafts=st.booleans(),
    uses_guards=st.booleans(),
    commit_unit=st.sampled_from(("word", "token", "followed-word")),
    target_lag_ms=st.none() | st.integers(500, 5000),
)


@given(settings)
def test_a_name_says_everything(setting: ReplaySetting):
    """The folder's name alone makes the same setting again."""
    assert list(parse_settings(setting.name)) == [setting]


def test_values_divided_by_slashes_are_all_tried():
    """Every combination is a setting, in order."""
    names = [
        setting.name for setting in parse_settings("edatt:alpha=0.4/0.2@segment=800/400,beam=5")
    ]
    assert names == [
        "edatt:alpha=0.4@segment=800,beam=5",
        "edatt:alpha=0.4@segment=400,beam=5",
        "edatt:alpha=0.2@segment=800,beam=5",
        "edatt:alpha=0.2@segment=400,beam=5",
    ]


def test_a_live_session_gets_all_that_a_setting_says():
    """What the setting leaves open stays as the command line has it."""
    base = TranslationOptions(("de",), segment_ms=500, beam_size=2, commit_unit="token")
    (setting,) = parse_settings("edatt:alpha=0.2@segment=800,wait=300,lag=1500,guards=false")
    assert setting.applied_to(base) == replace(
        base,
        policy=Edatt(alpha=0.2),
        segment_ms=800,
        initial_wait_ms=300,
        target_lag_ms=1500,
        disable_guards=True,
    )
    (setting,) = parse_settings("local_agreement:n=2@beam=5,commit=followed-word")
    assert setting.applied_to(base) == replace(
        base, policy=LocalAgreement(n=2), beam_size=5, commit_unit="followed-word"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("edat", "policy = 'edat'"),
        ("edatt:alpha", "alpha is not an assignment; allowed: PARAMETER=VALUE"),
        ("edatt:k=3", "edatt:k is not a parameter; allowed: alpha"),
        ("edatt@segments=800", "segments is not a parameter; allowed: segment, wait,"),
        ("edatt@segment=long", "segment = 'long' is not allowed; allowed: a whole number"),
        ("edatt@attention=best", "attention = 'best' is not allowed; allowed: one-layer,"),
        ("edatt@drafts=no", "drafts = 'no' is not allowed; allowed: true or false"),
        ("edatt@commit=line", "commit = 'line' is not allowed; allowed: word, token,"),
    ],
)
def test_bad_text_is_refused_with_what_is_allowed(text: str, message: str):
    """The message names the field, its value and what is allowed."""
    with pytest.raises(ValueError, match=re.escape(message)):
        list(parse_settings(text))
