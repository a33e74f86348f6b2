"""When each word was said, as the synthesisers tell it."""

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.corpus.espeak_library import speak_with_espeak_timed, word_spans
from earvoice.corpus.flite_library import speak_with_flite_timed
from earvoice.corpus.synthesizer import SynthesisError
from earvoice.corpus.voice import Engine, Voice
from earvoice.corpus.word_timing import TimedSpeech, time_words

pytestmark = pytest.mark.torch
TEXT = "Well, I would like one of the red cars. Thank you!"


def test_words_said_together_share_their_time_by_letters() -> None:
    """Words of one event share it by letters, and a pause before the next event ends a word."""
    events = [(0, 0.0), (4, 1.0), (11, 3.0)]
    spans = word_spans("one of the cars", events, [2.0], 3.5)
    assert spans == [(0.0, 1.0), (1.0, pytest.approx(1.4)), (pytest.approx(1.4), 2.0), (3.0, 3.5)]


def test_a_text_without_events_is_an_error() -> None:
    """Nothing is guessed where the engine tells nothing."""
    with pytest.raises(SynthesisError, match="first word"):
        word_spans("one two", [], [], 1.0)


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=9))
def test_times_never_go_back_nor_beyond_the_sound(spans: list[tuple[float, float]]) -> None:
    """Whatever an engine says, words follow each other within the sound."""
    words = time_words("a " * len(spans), spans, 1.1, 2_000.0)
    edges = [edge for word in words for edge in (word.start_ms, word.end_ms)]
    assert edges == sorted(edges)
    assert edges[-1] <= 2_000.0


def test_other_words_than_the_text_has_are_an_error() -> None:
    """A count that does not fit means that times would belong to other words."""
    with pytest.raises(SynthesisError, match="1 words were said of 'a b'; allowed: 2"):
        time_words("a b", [(0.0, 1.0)], 1.0, 1_000.0)


def speak(engine: Engine, name: str) -> TimedSpeech:
    """Speak the test's text; skip where the engine is not installed."""
    if not shutil.which(engine):
        pytest.skip(f"{engine} is not installed: make test-tools installs it")
    voice = Voice(engine, name, rate=1.0, pitch=50.0 if engine == "espeak-ng" else 0.0, speed=1.1)
    if engine == "flite":
        return speak_with_flite_timed(voice, TEXT)
    return speak_with_espeak_timed(voice, TEXT)


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("espeak-ng", "en-us+m1"),
        ("espeak-ng", "en-gb+f3"),
        ("flite", "kal16"),
    ],
)
def test_engines_speak_where_they_say(engine: Engine, name: str) -> None:
    """Words are louder than what lies between and around them, and fill the sound."""
    samples, words = speak(engine, name)
    assert [word.word for word in words] == TEXT.split()
    loudness = np.abs(samples.astype(float))
    said = np.zeros(len(loudness), bool)
    for word in words:
        said[round(16 * word.start_ms) : round(16 * word.end_ms)] = True
    assert 0.5 < said.mean() < 1.0
    assert loudness[said].mean() > 3 * loudness[~said].mean()
