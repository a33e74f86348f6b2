from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from earvoice.encoder.evidence import voice_activity
from earvoice.encoder.timeline import Timeline
from earvoice.encoder.voice_activity import MINIMUM_PAUSE_WINDOWS, speech_spans


def test_silence_has_no_spans():
    """Neither an empty utterance nor a quiet one has speech."""
    assert speech_spans([]) == []
    assert speech_spans([0.1, 0.49, 0.3]) == []


def test_hysteresis_keeps_doubtful_windows():
    """Speech begins at 0.5, goes on through 0.4 and ends below 0.35."""
    assert speech_spans([0.4, 0.5, 0.4, 0.36, 0.34, 0.1]) == [(1, 4)]


def test_short_pauses_are_speech_and_long_ones_are_not():
    """Three quiet windows (96 ms) are bridged, four (128 ms) are a pause."""
    assert speech_spans([0.9, 0, 0, 0, 0.9]) == [(0, 5)]
    assert speech_spans([0.9, 0, 0, 0, 0, 0.9]) == [(0, 1), (5, 6)]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=60))
def test_spans_are_ordered_and_apart(probabilities):
    """Spans never touch, never overlap, and begin with a window that is surely speech."""
    spans = speech_spans(probabilities)
    for begin, end in spans:
        assert 0 <= begin < end <= len(probabilities)
        assert probabilities[begin] >= 0.5
    for (_, end), (begin, _) in pairwise(spans):
        assert begin - end >= MINIMUM_PAUSE_WINDOWS


def test_positions_are_the_clients():
    """Windows of 512 samples at 16 kHz become positions at the client's rate, ends clamped."""
    timeline = Timeline(start_sample=1000, end_sample=1000 + 48000 // 8, rate_hz=48000)
    heard = voice_activity([(0, 1), (2, 9)], timeline)
    assert heard.has_speech
    assert heard.speech_start_sample == 1000
    assert heard.speech_end_sample == timeline.end_sample
    assert heard.pauses == ((1000 + 512 * 3, 1000 + 1024 * 3),)


def test_without_speech_positions_are_the_start():
    """An utterance without speech says so and points at its own start."""
    heard = voice_activity([], Timeline(start_sample=5, end_sample=50, rate_hz=8000))
    assert not heard.has_speech
    assert heard.speech_start_sample == heard.speech_end_sample == 5
