from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earvoice.encoder.audio import Resampler
from earvoice.encoder.evidence import (
    MINIMUM_PAUSE_WINDOWS,
    last_label_end_frame,
    source_words,
    speech_spans,
)
from earvoice.encoder.network import Encoding, LabelKind
from earvoice.encoder.utterance import Utterance
from earvoice.runtime.audio_format import AudioFormat
from tests.fakes import FakeNetwork

BLANK = 4
START, INNER, SILENT, BORDER = (
    LabelKind.START,
    LabelKind.INNER,
    LabelKind.SILENT,
    LabelKind.BORDER,
)
KINDS = (START, INNER, START, SILENT, SILENT, BORDER)


@pytest.mark.parametrize(
    ("frame_labels", "labels", "complete", "partial"),
    [
        ([], (), 0, False),
        ([4, 4], (), 0, False),
        ([0, 0, 4, 0], (0, 0), 1, True),
        ([0, 1, 1, 4], (0, 1), 0, True),
        ([1, 4, 2, 1], (1, 2, 1), 1, True),
        ([3, 4, 3], (3, 3), 0, False),
        ([0, 5], (0, 5), 1, False),
        ([0, 5, 1], (0, 5, 1), 1, True),
        ([0, 5, 4, 5, 2, 1], (0, 5, 5, 2, 1), 1, True),
    ],
)
def test_words_while_reading(frame_labels, labels, complete, partial):
    """Repeats collapse, blanks part them, and the word that has not been followed is partial."""
    words = source_words(frame_labels, BLANK, KINDS, final=False)
    assert words == (complete, partial, labels)


def test_the_end_completes_the_last_word():
    """With the utterance's end no word is partial."""
    assert source_words([0, 4, 2, 1], BLANK, KINDS, final=True)[:2] == (2, False)


def test_last_label_ends_after_its_frame():
    """The end of the last label that is not blank, or nothing when all are blank."""
    assert last_label_end_frame([4, 0, 1, 4, 4], BLANK) == 3
    assert last_label_end_frame([4, 4], BLANK) == 0


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


def encoded(run_lengths=(), spans=(), *, start_sample, end_sample, rate_hz, final=False):
    """What is told of frames of 40 ms and windows of 32 ms."""
    audio_format = AudioFormat("linear16", rate_hz, 1)
    utterance = Utterance(FakeNetwork(), audio_format, Resampler(rate_hz, 16_000), start_sample)
    encoding = Encoding(b"", (), tuple(run_lengths), ())
    return utterance.message(encoding, list(spans), 0, end_sample, final=final)


def test_spans_are_clamped_and_the_final_one_ends_with_the_audio():
    """A state's end is its frames' end, never behind the audio; a final last state ends with it."""

    def ends(run_lengths, *, final):
        told = encoded(run_lengths, start_sample=100, end_sample=900, rate_hz=8000, final=final)
        return list(told.states.span_end_samples)

    assert ends([1, 1], final=False) == [420, 740]
    assert ends([1, 2], final=False) == [420, 900]
    assert ends([1, 1], final=True) == [420, 900]
    assert ends([], final=True) == []


def test_positions_are_the_clients():
    """Windows of 512 samples at 16 kHz become positions at the client's rate, ends clamped."""
    spans = [(0, 1), (2, 9)]
    told = encoded(spans=spans, start_sample=1000, end_sample=7000, rate_hz=48000)
    heard = told.evidence.voice_activity
    assert heard.has_speech
    assert heard.speech_start_sample == 1000
    assert heard.speech_end_sample == 7000
    (pause,) = heard.pauses
    assert (pause.start_sample, pause.end_sample) == (1000 + 512 * 3, 1000 + 1024 * 3)


def test_without_speech_positions_are_the_start():
    """An utterance without speech says so and points at its own start."""
    heard = encoded(start_sample=5, end_sample=50, rate_hz=8000).evidence.voice_activity
    assert not heard.has_speech
    assert heard.speech_start_sample == heard.speech_end_sample == 5
