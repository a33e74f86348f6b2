from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest

from earvoice.encoder.model import load_model
from earvoice.encoder.session import EncodeSession
from earvoice.encoder.settings import EncoderSettings
from tests.requests import audio, finish, open_session
from tests.shared_data import SHARED

pytestmark = pytest.mark.torch

GOLDEN = SHARED / "golden"
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def trained_model(shared_golden):
    path = shared_golden / "models" / "t1" / "checkpoint.pt"
    return load_model(EncoderSettings(model_path=path, device="cpu"))


def encoded(model, data: bytes, revisions: int):
    """Encode int16 audio in some revisions and return the final answer."""
    session = EncodeSession(model, 40_000)
    session.apply(open_session(enable_source_transcript=True))
    size = len(data) // (2 * revisions) * 2
    for revision in range(1, revisions + 1):
        session.apply(audio(revision, data[(revision - 1) * size : revision * size]))
    rest = data[revisions * size :]
    return session.apply(finish(revisions + 1, len(data) // 2, rest)).encoded


@pytest.mark.parametrize("name", ["utt0", "utt1", "utt2"])
def test_final_states_are_the_papers(trained_model, name):
    """From waves to states in several revisions: what the papers' code gives for the whole file."""
    waves = np.load(GOLDEN / "wav_fbank.npz")
    expected = np.load(GOLDEN / "t1_forward.npz")[f"avg/{name}/encoder_out_TBC"][:, 0]
    answer = encoded(trained_model, waves[name].astype("<i2").tobytes(), revisions=4)
    states = np.frombuffer(answer.states.data, "<f4").reshape(expected.shape)
    np.testing.assert_allclose(states, expected, atol=TOLERANCE)


def test_the_transcript_is_what_was_said(trained_model):
    """A trained model's CTC labels spell the sentence, and its words are counted."""
    rows = json.loads((GOLDEN / "wav" / "rows.json").read_text())
    found, said = [], []
    for row in rows[:5]:
        with wave.open(str(GOLDEN / "wav" / Path(row["wav"]).name)) as file:
            data = file.readframes(file.getnframes())
        evidence = encoded(trained_model, data, revisions=3).evidence
        assert evidence.complete_word_count == len(evidence.source_transcript.split())
        assert evidence.voice_activity.has_speech
        found += evidence.source_transcript.split()
        said += row["src"].split()
    assert len(set(found) & set(said)) / len(set(said)) > 0.8
