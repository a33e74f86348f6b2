"""The simulated telephone line beside one that carries sound."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from earvoice.corpus.extraction import log_mel
from earvoice.corpus.telephone_line import send_over_line
from earvoice.models.frontend import INT16_SCALE
from earvoice.training.telephone_channel import telephone

DEMO = Path(__file__).parents[2] / "demo" / "librispeech_1995-1837-0001.wav"
IN_BAND = slice(12, 54)
"""Mel bins from 370 to 3,200 Hz: any line passes them."""
ABOVE_BAND = slice(62, None)
"""Mel bins from 4,300 Hz: no line passes them."""


@pytest.fixture(scope="module")
def sound() -> np.ndarray:
    """Six seconds of a real voice, [samples] int16 at 16 kHz."""
    samples, rate_hz = soundfile.read(DEMO, dtype="int16", stop=96_000)
    assert rate_hz == 16_000
    return np.asarray(samples)


def features_of(samples: np.ndarray) -> np.ndarray:
    """[frames, 80] float32 log-mel features."""
    return log_mel(samples.astype(np.float32) / INT16_SCALE).astype(np.float32)


def test_in_the_band_it_sounds_like_a_line(sound: np.ndarray) -> None:
    """Lines differ, and on average they are what a real one does, and nearer to it than no line."""
    clean, line = features_of(sound), features_of(send_over_line(sound))
    lines = [telephone(clean, np.random.default_rng(seed)) for seed in range(20)]
    heard = np.mean(lines, axis=0)
    assert np.abs(heard - line)[:, IN_BAND].mean() < 0.5
    low = slice(0, 10)
    assert np.abs(heard - line)[:, low].mean() < 0.7 * np.abs(clean - line)[:, low].mean()


def test_nothing_of_the_voice_is_left_above_the_band(sound: np.ndarray) -> None:
    """There is noise alone, equally loud whether somebody speaks or not."""
    clean = features_of(sound)
    spoken = clean.mean(axis=1) > clean.mean()
    for seed in range(5):
        above = telephone(clean, np.random.default_rng(seed))[:, ABOVE_BAND]
        assert abs(above[spoken].mean() - above[~spoken].mean()) < 0.1
    assert clean[spoken, ABOVE_BAND].mean() - clean[~spoken, ABOVE_BAND].mean() > 0.3


def test_it_is_seeded_and_silence_stays_finite() -> None:
    """The same seed gives the same line; a line that carries nothing is a faint noise."""
    silence = np.full((50, 80), -15.9, np.float32)
    first, again = (telephone(silence, np.random.default_rng(4)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.isfinite(first).all()
    assert first.dtype == np.float32
