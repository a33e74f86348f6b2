"""The mean word lag asked for is held by moving the policy's own parameter."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.policies import (
    AlignAtt,
    Edatt,
    FrameSchedule,
    HoldN,
    LocalAgreement,
    Offline,
    SharedPrefix,
    StridedWaitK,
    WaitK,
)
from earvoice.policy.lag_control import moved_lag, options_at_lag
from earvoice.policy.wire.config import check_consistency, effective_config, stream_options
from earvoice.runtime.audio_format import WORDS
from earvoice.runtime.errors import InvalidFieldError
from earvoice.runtime.parameter import parameter
from tests.fakes import RATE_HERTZ
from tests.unit.policy.running import items_of, seconds, with_options
from tests.unit.policy.test_config import MODEL, config, milliseconds
from tests.unit.policy.test_history import run_talk

EDATT = Edatt(0.2, 2, 4)
MOVABLE = [
    EDATT,
    AlignAtt(4, 4),
    LocalAgreement(2),
    SharedPrefix(1),
    HoldN(6),
    WaitK(3),
    WaitK(3, detection="adaptive"),
    StridedWaitK(3, stride_ms=300),
    StridedWaitK(3, stride_words=1, stride_ms=None),
]
# In two minutes without a pause, words that are counted by the clock are counted wrong.
HEARING = [
    EDATT,
    AlignAtt(4, 4),
    LocalAgreement(2),
    HoldN(6),
    WaitK(3, detection="adaptive"),
    StridedWaitK(3, stride_words=1, stride_ms=None),
]


def lags_ms(events) -> list[float]:
    """Ideal word lags."""
    return [
        (item.delay_samples - item.source_end_sample) * 1000 / RATE_HERTZ
        for item in items_of(events)
    ]


@pytest.mark.parametrize("parameters", MOVABLE, ids=lambda p: type(p).__name__)
@given(lags=st.lists(st.floats(0, 40_000), min_size=2, max_size=5))
def test_every_place_on_a_scale_is_allowed(parameters, lags):
    """What the control may choose, a client might have asked for."""
    for lag_ms in lags:
        options = options_at_lag(with_options(policy=parameters, beam_size=2), lag_ms)
        assert stream_options(effective_config(options, MODEL), MODEL).policy == options.policy


@pytest.mark.parametrize("parameters", MOVABLE, ids=lambda p: type(p).__name__)
def test_scales_are_monotone(parameters):
    """More lag never gives a parameter that speaks sooner."""
    name = {Edatt: "alpha", AlignAtt: "frames", HoldN: "n"}.get(type(parameters), "k")
    by_segment = isinstance(parameters, LocalAgreement | SharedPrefix)
    places = [
        options_at_lag(with_options(policy=parameters), lag_ms) for lag_ms in range(0, 20_000, 250)
    ]
    values = [place.segment_ms if by_segment else getattr(place.policy, name) for place in places]
    assert values == sorted(values, reverse=name == "alpha")
    assert values[0] != values[-1]


def test_a_segment_of_a_text_has_a_word():
    """A shorter one a client could not have asked for."""
    words = with_options(audio_format=WORDS, policy=LocalAgreement(4), target_lag_ms=500)
    assert options_at_lag(words, 500.0).segment_ms == 250
    check_consistency(options_at_lag(words, 0.0))


def test_a_parameter_without_bounds_may_hold_the_lag():
    """It goes as far as it is sent."""

    @dataclass(frozen=True)
    class Pausing(HoldN):
        n: float = parameter(0.5, lag=lambda _, wait_ms: wait_ms / 100)

    assert Pausing().at_wait(100_000).n == 1000


@given(
    target_ms=st.floats(500, 20_000),
    lags=st.lists(st.floats(-1e6, 1e6), max_size=60),
)
def test_the_control_stays_within_its_bounds(target_ms, lags):
    """Whatever it is told."""
    place = target_ms
    for lag_ms in lags:
        place = moved_lag(place, target_ms, lag_ms)
        assert 0 <= place <= 4 * target_ms


@given(
    factor=st.floats(0.5, 2.0),
    offset_ms=st.floats(0, 600),
    delay_words=st.integers(1, 8),
    noise=st.lists(st.floats(-500, 500), min_size=200, max_size=200),
    target_ms=st.floats(1500, 6000),
)
def test_the_mean_is_held_though_the_scale_is_wrong(
    factor, offset_ms, delay_words, noise, target_ms
):
    """A policy that lags otherwise than its scale says, and answers some words late."""
    place = target_ms
    places = [place] * delay_words
    lags = []
    for disturbance in noise:
        lags.append(max(0.0, factor * places[0] + offset_ms + disturbance))
        place = moved_lag(place, target_ms, lags[-1])
        places = [*places[1:], place]
    assert statistics.mean(lags) == pytest.approx(target_ms, rel=0.2)


@pytest.mark.parametrize("parameters", HEARING, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("target_ms", [1500, 3000])
def test_a_session_holds_the_lag_asked_for(parameters, target_ms):
    """A talk of two minutes, EVERY_SEGMENT: the mean of all its words is within 20 %."""
    events, _ = run_talk(120, policy=parameters, segment_ms=500, target_lag_ms=target_ms)
    assert statistics.mean(lags_ms(events)) == pytest.approx(target_ms, rel=0.2)


def test_the_held_lag_does_not_depend_on_how_audio_is_cut():
    """In EVERY_SEGMENT it is a function of the samples."""
    whole, _ = run_talk(30, policy=EDATT, target_lag_ms=2500)
    cut, _ = run_talk(30, [seconds(0.3)] * 100, policy=EDATT, target_lag_ms=2500)
    assert [(i.text, i.delay_samples) for i in items_of(whole)] == [
        (i.text, i.delay_samples) for i in items_of(cut)
    ]


@pytest.mark.parametrize(
    ("choice", "parameters"),
    [
        ({"offline": {}}, Offline()),
        (
            {"frame_schedule": {"wait_frames": 100, "stride_frames": 50, "tokens": 1}},
            FrameSchedule(100, 50, 1),
        ),
    ],
)
def test_a_policy_without_a_parameter_to_move_is_refused(choice, parameters):
    """The message names the policy."""
    assert not parameters.has_lag_scale
    with pytest.raises(InvalidFieldError, match=r"target_lag = '2000 ms'.*no parameter to move"):
        stream_options(config(policy=choice, target_lag=milliseconds(2000)), MODEL)


def test_the_lag_asked_for_has_its_range():
    """And stands in the effective config."""
    options = stream_options(config(target_lag=milliseconds(2000)), MODEL)
    assert options.target_lag_ms == 2000
    assert effective_config(options, MODEL).target_lag.ToMilliseconds() == 2000
    with pytest.raises(InvalidFieldError, match=r"target_lag = '400 ms'.*500 ms to 20000 ms"):
        stream_options(config(target_lag=milliseconds(400)), MODEL)
