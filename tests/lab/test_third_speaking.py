"""What is said a third time, and what another recogniser writes down."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

from earvoice.corpus import hibari, transcription
from earvoice.corpus.extraction import extract
from earvoice.corpus.feature_store import FeatureStore
from earvoice.corpus.recording import VOICES
from earvoice.corpus.rendering import plan_third_requests, speak_alone
from earvoice.corpus.synthesizer import SynthesisError
from earvoice.corpus.transcription import read_transcribed, transcribe
from earvoice.corpus.voice import Voice, draw_third_voice, draw_unseen_speaker
from tests.lab.test_neural_voices import HOUR_LETTERS, SENTENCES

pytestmark = pytest.mark.torch
WORDS = "well it is half past five"
CLIPS = ("11-1-0000", "12-1-0000", "13-1-0000")


def test_two_engines_share_it_and_none_has_a_voice_of_the_tests() -> None:
    """Hibari and festival's diphones, about half of it each."""
    voices = [draw_third_voice(random.Random(seed)) for seed in range(400)]
    assert {(voice.engine, voice.name) for voice in voices} == {
        ("hibari", "heart"),
        ("festival", "kal_diphone"),
    }
    assert 150 < sum(voice.engine == "hibari" for voice in voices) < 250
    assert draw_unseen_speaker(random.Random(1)).name != "kal_diphone"


def test_conversations_of_train_are_said_whole_by_the_hours() -> None:
    """Each speaker of a conversation keeps a voice; more hours leave the beginning as it is."""
    some = plan_third_requests(SENTENCES, 1, 16 * len(SENTENCES[0].spoken) / HOUR_LETTERS)
    every = plan_third_requests(SENTENCES, 1, 9.0)
    assert len(some) == 16
    assert len(every) == 40
    assert every[:16] == some
    rows = {row.key: row for row in SENTENCES}
    assert {rows[request.sentence].split for request in every} == {"train"}
    assert all(request.key == f"{request.sentence}/third" for request in every)
    voices = {
        (rows[request.sentence].group, rows[request.sentence].speaker): request.voice
        for request in every
    }
    assert len(voices) == 10
    for request in every:
        row = rows[request.sentence]
        assert request.voice == voices[row.group, row.speaker]


def test_hibari_speaks_or_says_what_is_missing() -> None:
    """The same words sound the same, faster when asked, as loud as every other engine."""
    voice = Voice("hibari", "heart")
    if not hibari.is_installed():
        with pytest.raises(SynthesisError, match=r"earvoice\[neural-voices\]"):
            speak_alone(voice, WORDS)
        return
    wave = speak_alone(voice, WORDS)
    assert 1.0 < len(wave) / 16_000 < 4.0
    assert np.sqrt(np.mean(np.square(wave / 32_768))) == pytest.approx(0.05, rel=0.05)
    np.testing.assert_array_equal(wave, speak_alone(voice, WORDS))
    assert len(speak_alone(replace(voice, rate=1.3), WORDS)) < 0.9 * len(wave)


class Recogniser:
    """Says what it is told for each recording, as faster-whisper would."""

    def __init__(self, heard: Mapping[str, list[tuple[str, float]]]) -> None:
        self.heard = heard

    def transcribe(self, path: str, **_options: object) -> tuple[Iterator[Any], None]:
        """Stretches of words and how likely they are."""
        stretches = self.heard[Path(path).stem]
        return iter(
            [SimpleNamespace(text=text, avg_logprob=sure) for text, sure in stretches]
        ), None


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """Four clips; speaker 10 is kept for the tests."""
    folder = tmp_path / "speech"
    for name in (VOICES, "ljspeech"):
        (folder / name).mkdir(parents=True)
    noise = np.random.default_rng(1).normal(0.0, 0.05, 16_000)
    for name in ("10-1-0000", "11-1-0000", "12-1-0000", "13-1-0000"):
        soundfile.write(folder / VOICES / f"{name}.flac", noise, 16_000)
    return folder


def test_what_is_heard_with_certainty_becomes_a_transcript(
    speech: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In spoken form, without translation; the rest is named, a held-out speaker never asked."""
    heard = {
        "11-1-0000": [("At 5:30", -0.2), (" he left.", -0.5)],
        "12-1-0000": [("Something quite unlike it.", -0.3), ("Or not.", -0.7)],
        "13-1-0000": [("Chapter one.", -0.1)],
    }
    monkeypatch.setattr(transcription, "_recogniser", lambda: Recogniser(heard))
    (sentence,) = transcribe(speech, tmp_path)
    assert sentence.key == "librispeech-11-1-0000"
    assert sentence.split == "train"
    assert sentence.transcript == "at five thirty he left"
    assert (sentence.german, sentence.spanish) == ("", "")
    assert read_transcribed(tmp_path) == [sentence]
    told = capsys.readouterr().err
    assert "12-1-0000 left out, -0.70" in told
    assert "13-1-0000 left out: 'Chapter one.'" in told


def test_its_features_stand_beside_the_babble(
    speech: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transcribed clip is there twice: with its words, and among the voices of others."""
    heard = {name: [(WORDS, -0.1)] for name in CLIPS}
    monkeypatch.setattr(transcription, "_recogniser", lambda: Recogniser(heard))
    assert read_transcribed(tmp_path) == []
    extract(tmp_path, speech)
    transcribe(speech, tmp_path)
    extract(tmp_path, speech)
    clips = [clip for clip, _ in FeatureStore(tmp_path / "features").read()]
    spoken = {clip.key: clip.voice for clip in clips if clip.sentence}
    assert spoken == {f"librispeech-{name}": "librispeech" for name in CLIPS}
    assert {clip.key for clip in clips if not clip.sentence} == {f"{VOICES}-{n}" for n in CLIPS}


def test_a_missing_recogniser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that brings it."""

    def missing(name: str) -> None:
        message = f"No module named {name!r}"
        raise ImportError(message)

    monkeypatch.setattr(transcription, "import_module", missing)
    with pytest.raises(transcription.TranscriptionError, match=r"earvoice\[transcripts\]"):
        transcribe(Path("nowhere"), Path("nowhere"))
