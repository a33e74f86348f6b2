"""The default model in the repository."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from earvoice.corpus.sound import coloured_noise, music
from earvoice.evaluation.precision import translate_offline
from earvoice.evaluation.quality import word_error_rate
from earvoice.models.checkpoint import Checkpoint, load_checkpoint
from earvoice.runtime.settings import shipped_model_path
from earvoice.studies.word_times import time_words
from earvoice.training.export import model_config, with_pivot, with_shortlist

pytestmark = pytest.mark.torch
DEMO = Path(__file__).parents[2] / "demo"


@pytest.fixture(scope="module")
def shipped() -> Checkpoint:
    return load_checkpoint(shipped_model_path())


def write(checkpoint: Checkpoint, sound: np.ndarray, tag: str) -> str:
    """What greedy search writes of a whole sound."""
    return translate_offline(checkpoint, tag, checkpoint.open_features()(sound))


def test_the_shipped_model_is_small_and_of_the_recipes_shape(shipped: Checkpoint) -> None:
    config = shipped.config
    made = model_config(config.source_pieces, config.target_pieces)
    made = with_shortlist(with_pivot(made, shipped.target_vocabulary))
    chosen = {"policy_defaults": made.policy_defaults, "confidence": made.confidence}
    assert replace(config, **chosen) == made
    assert sum(path.stat().st_size for path in shipped_model_path().iterdir()) <= 90_000_000


def test_a_real_reader_is_understood(shipped: Checkpoint) -> None:
    """A speaker that training never hears: five words of six are right."""
    sound, _ = soundfile.read(DEMO / "librispeech_1995-1837-0001.wav", dtype="float32")
    said = (
        "it was the first great sorrow of his life it was not so much the loss of the cotton itself"
        " but the fantasy the hopes the dreams built around it"
    )
    assert word_error_rate([write(shipped, sound, "en")], [said]) < 1 / 6


def test_words_of_a_real_reader_have_a_time(shipped: Checkpoint) -> None:
    """In order, within the sound; a text that cannot have been said in it is refused by name."""
    sound, rate_hz = soundfile.read(DEMO / "librispeech_1995-1837-0001.wav", dtype="float32")
    text = "It was the first great sorrow of his life"
    words = time_words(shipped, "reader.wav", sound, text)
    assert [word.word for word in words][-2:] == ["his", "life"]
    places = [place for word in words for place in (word.start_ms, word.end_ms)]
    assert places == sorted(places)
    assert 0 <= places[0] < places[-1] <= 1000 * len(sound) / rate_hz
    with pytest.raises(ValueError, match=r"reader\.wav: 'It was the first.*do not fit 3 frames"):
        time_words(shipped, "reader.wav", sound[:1600], text)


@pytest.mark.parametrize("tag", ["en", "de", "es"])
@pytest.mark.parametrize("kind", ["silence", "quiet noise", "noise", "music"])
def test_what_is_no_speech_says_nothing(shipped: Checkpoint, kind: str, tag: str) -> None:
    generator = np.random.default_rng(1)
    sound = {
        "silence": lambda: np.zeros(80_000, np.float32),
        "quiet noise": lambda: generator.normal(0, 1e-3, 80_000).astype(np.float32),
        "noise": lambda: 0.1 * coloured_noise(80_000, generator),
        "music": lambda: music(80_000, generator),
    }[kind]()
    assert write(shipped, sound, tag) == ""
