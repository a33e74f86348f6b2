"""What is no English speech brings no words; what is unsure is told as not understood."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.e2e.calling import RATE_HERTZ, ROOT, assert_well_formed, call, noise, requests, speech

GERMAN = Path(__file__).parents[1] / "data" / "german.ogg"
"""Eleven seconds of espeak-ng: trains, dinner in the garden, the weather."""
ENGLISH = ROOT / "demo" / "inaugural_1961.wav"
SECONDS = 20

pytestmark = pytest.mark.torch


def as_bytes(sound: np.ndarray) -> bytes:
    return (sound.clip(-1, 1) * 32767).astype("<i2").tobytes()


def music() -> bytes:
    """Chords that ring out, twice a second, with overtones and a vibrato."""
    generator = np.random.default_rng(1)
    sound = np.zeros(SECONDS * RATE_HERTZ)
    tones = [220, 261.6, 293.7, 329.6, 392, 440, 523.3, 587.3]
    for begin in range(0, len(sound), RATE_HERTZ // 2):
        since_s = np.arange(len(sound) - begin) / RATE_HERTZ
        for tone in generator.choice(tones, 3, replace=False):
            for overtone in range(1, 6):
                turn = 2 * np.pi * tone * overtone * since_s + 0.3 * np.sin(10 * np.pi * since_s)
                sound[begin:] += np.exp(-3 * since_s) / overtone * np.sin(turn)
    return as_bytes(0.6 * sound / np.abs(sound).max())


def hum() -> bytes:
    time_s = np.arange(SECONDS * RATE_HERTZ) / RATE_HERTZ
    sound = 0.2 * np.sin(100 * np.pi * time_s) + 0.1 * np.sin(300 * np.pi * time_s)
    return as_bytes(sound)


def babble() -> bytes:
    """Many talk at once: both recordings of the demo, over and over, each time elsewhere."""
    generator = np.random.default_rng(2)
    sound = np.zeros(SECONDS * RATE_HERTZ)
    for voice in (speech(), speech(ENGLISH)) * 8:
        said = np.frombuffer(voice, "<i2").astype(np.float64)
        repeated = np.tile(said, len(sound) // len(said) + 2)
        begin = generator.integers(len(said))
        sound += repeated[begin : begin + len(sound)] / said.std()
    return as_bytes(0.5 * sound / np.abs(sound).max())


def german() -> bytes:
    sound, rate_hertz = soundfile.read(GERMAN)
    assert rate_hertz == RATE_HERTZ
    return as_bytes(sound)


SOUNDS = {
    "noise": lambda: noise(SECONDS),
    "hum": hum,
    "music": music,
    "babble": babble,
    "German": german,
}


@pytest.mark.parametrize("language", ["en", "de", "es"])
@pytest.mark.parametrize("name", SOUNDS)
async def test_what_is_no_english_brings_no_words(services, name: str, language: str):
    """Voice activity leaves out what nobody said, confidence what nobody said like this."""
    wanted = requests(SOUNDS[name](), target_language_codes=[language])
    outcome = await call(services.address, wanted)
    assert_well_formed(outcome)
    assert outcome.items == []


@pytest.mark.parametrize("language", ["en", "de"])
async def test_what_was_not_understood_is_told_with_its_place(services, language: str):
    """Inside its utterance, and counted; nothing is shown of it while it is heard."""
    backwards = np.frombuffer(speech(), "<i2")[::-1].tobytes()
    wanted = {"target_language_codes": [language], "min_confidence": 1.0}
    audio = requests(backwards, enable_interim_results=True, **wanted)
    outcome = await call(services.address, audio)
    assert_well_formed(outcome)
    ends = outcome.of("end_of_utterance")
    lost = [end for end in ends if end.HasField("not_understood")]
    assert lost
    assert outcome.items == []
    for end in lost:
        said = end.not_understood
        assert end.start_sample <= said.start_sample < said.end_sample <= end.end_sample
    assert outcome.of("summary")[0].utterances_not_understood == len(lost)
    assert outcome.of("tentative") == []


@pytest.mark.parametrize("language", ["en", "de"])
async def test_what_is_understood_is_said_in_the_same_words(services, language: str):
    """The threshold holds utterances back; it changes none."""
    audio, wanted = speech(ENGLISH), {"target_language_codes": [language]}
    free = await call(services.address, requests(audio, min_confidence=0, **wanted))
    held = await call(services.address, requests(audio, **wanted))
    assert_well_formed(held)
    assert all(0 <= item.confidence <= 1 for item in free.items)
    assert len({item.confidence for item in free.items}) > 1
    lost = {end.utterance for end in held.of("end_of_utterance") if end.HasField("not_understood")}
    understood = [(item.text, item.utterance) for item in free.items if item.utterance not in lost]
    assert [(item.text, item.utterance) for item in held.items] == understood
    assert understood
