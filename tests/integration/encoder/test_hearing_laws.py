from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from earvoice.encoder.session import EncodeSession
from earvoice.encoder.utterance import Utterance
from tests.requests import audio, finish, open_session, reset

pytestmark = pytest.mark.torch

CUT_TOLERANCE = 2e-6
END = 2_000
"""Samples heard in each example: at 8 kHz a quarter of a second."""


def opened(model, rate_hz=16000) -> EncodeSession:
    session = EncodeSession(model, 10_000)
    session.apply(open_session(rate_hz=rate_hz))
    return session


def features_of(utterance: Utterance) -> np.ndarray:
    return utterance._features.rows


@hypothesis_settings(max_examples=12, deadline=None)
@given(
    rate_hz=st.sampled_from([8000, 16000, 22050, 44100, 48000]),
    cuts=st.lists(st.integers(0, 32_000), max_size=5),
)
def test_features_and_speech_do_not_depend_on_cuts(model, speech, rate_hz, cuts):
    """What the network sees of an utterance is the same however its audio was cut."""
    data = speech.tobytes()[:64_000]
    whole, pieces = (opened(model, rate_hz)._utterance for _ in range(2))
    whole.add(data)
    bounds = [0, *(2 * cut for cut in sorted(cuts)), len(data)]
    for begin, end in pairwise(bounds):
        pieces.add(data[begin:end])
    np.testing.assert_allclose(features_of(pieces), features_of(whole), atol=CUT_TOLERANCE)
    np.testing.assert_allclose(pieces._probabilities, whole._probabilities, atol=CUT_TOLERANCE)


@hypothesis_settings(max_examples=6, deadline=None)
@given(
    rate_hz=st.sampled_from([8000, 16000, 44100]),
    start_sample=st.integers(0, 2**40),
    cut=st.integers(0, END),
)
def test_the_answer_is_a_pure_function(model, speech, rate_hz, start_sample, cut):
    """With the same cuts an utterance is encoded bitwise alike, whatever the session did before."""
    data = speech.tobytes()[20_000 : 20_000 + 2 * END]

    def hear(session: EncodeSession) -> list:
        return [
            session.apply(reset(1, start_sample)),
            session.apply(audio(1, data[: 2 * cut])),
            session.apply(finish(2, start_sample + END, data[2 * cut :])),
        ]

    used = opened(model, rate_hz)
    used.apply(audio(1, speech.tobytes()))
    assert hear(used) == hear(opened(model, rate_hz))


def test_rest_and_empty_finish_hear_the_same(model, speech):
    """An utterance whose rest comes with finish, or before it, ends with the same states."""
    data = speech.tobytes()[:50_000]
    together, apart = opened(model, 22050), opened(model, 22050)
    one = together.apply(finish(1, 25_000, data)).encoded
    apart.apply(audio(1, data))
    two = apart.apply(finish(2, 25_000)).encoded
    assert two.states.states_id.revision == 2
    two.states.states_id.revision = 1
    assert one == two


@hypothesis_settings(max_examples=8, deadline=None)
@given(end=st.integers(0, 12_000), rate_hz=st.sampled_from([8000, 16000]))
def test_an_end_in_the_past_is_an_end(model, whisper_model, speech, end, rate_hz):
    """What was received after the end changes nothing, whatever a family's features look at."""
    data = speech.tobytes()[:40_000]
    for network in (model, whisper_model):
        early, late = opened(network, rate_hz), opened(network, rate_hz)
        expected = early.apply(finish(1, end, data[: 2 * end])).encoded
        late.apply(audio(1, data))
        found = late.apply(finish(2, end)).encoded
        assert found.evidence == expected.evidence
        assert found.states.span_end_samples == expected.states.span_end_samples
        np.testing.assert_allclose(
            np.frombuffer(found.states.data, np.float32),
            np.frombuffer(expected.states.data, np.float32),
            atol=1e-4,
        )
