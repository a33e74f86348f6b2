"""A tiny model, and what the shipped one hears in two short recordings."""

from __future__ import annotations

from pathlib import Path

import pytest
import soundfile

from earvoice.evaluation.log import read_lines
from earvoice.evaluation.recorder import record_inputs
from earvoice.evaluation.recording import Grid, Recording
from earvoice.evaluation.run_folder import RunProgress
from earvoice.evaluation.source_set import read_sources
from earvoice.runtime.settings import shipped_model_path

DEMO = Path(__file__).parents[3] / "demo" / "librispeech_1995-1837-0001.wav"


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The shipped model's folder: three decoder layers of four heads, English to German."""
    return shipped_model_path()


@pytest.fixture(scope="session")
def test_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a test set: two times 2 seconds of the demo, and what they might mean."""
    folder = tmp_path_factory.mktemp("set")
    samples, rate_hz = soundfile.read(DEMO, dtype="int16")
    for name, start_s, end_s in (("a", 0.0, 2.1), ("b", 2.1, 4.3)):
        part = samples[int(start_s * rate_hz) : int(end_s * rate_hz)]
        soundfile.write(folder / f"{name}.wav", part, rate_hz)
    (folder / "wavs.txt").write_text("a.wav\nb.wav\n")
    (folder / "refs.txt").write_text("Sie sagte, dass\nso etwas nicht geschah.\n")
    return folder


@pytest.fixture(scope="session")
def recording(
    model_path: Path, test_set: Path, tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    """What the shipped model hears in segments of 400 ms."""
    made = Recording(tmp_path_factory.mktemp("recording"))
    sources = read_sources(test_set / "wavs.txt", read_lines(test_set / "refs.txt"))
    progress = RunProgress("record", len(sources), 0)
    record_inputs(model_path, sources, [Grid(400)], made, progress)
    return made
