"""What is kept of a finished run; a replay's folder stands for that of a live one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from earvoice.evaluation.log import read_lines
from earvoice.evaluation.recording import Recording, RecordingError
from earvoice.evaluation.replay.run import record_run
from earvoice.evaluation.source_set import SourceRecording, read_sources
from tests.lab.evaluation.commands import run_command
from tests.own_policy import shown_policy

pytestmark = pytest.mark.torch


@pytest.fixture
def run_folder(recording: Recording, model_path: Path, tmp_path: Path) -> Path:
    run_command(
        *("replay", recording.folder, "--model", model_path, "--output", tmp_path),
        *("--policy", "edatt:alpha=0.4@segment=400"),
    )
    return tmp_path / "edatt:alpha=0.4@segment=400"


@pytest.fixture
def sources(test_set: Path) -> tuple[SourceRecording, ...]:
    return read_sources(test_set / "wavs.txt", read_lines(test_set / "refs.txt"))


def test_a_run_is_recorded_and_compared_with_its_replay(
    run_folder: Path, sources: tuple[SourceRecording, ...], model_path: Path, tmp_path: Path
):
    """What the run did not finish is left out; what it said otherwise is found."""
    log = run_folder / "instances.log"
    first, second = log.read_text().splitlines()
    log.write_text(f"{second}\n")
    damaged = [replace(sources[0], path=tmp_path / "nowhere.wav"), sources[1]]
    setting, *compared = record_run(run_folder, damaged, model_path)
    assert setting.segment_ms == 400
    assert compared == [1, ()]
    other = {**json.loads(second), "prediction": "etwas anderes"}
    log.write_text(f"{first}\n{json.dumps(other)}\n")
    assert record_run(run_folder, sources, model_path)[1:] == (2, (1,))


def test_a_run_with_a_file_s_policy_is_recorded(
    recording: Recording,
    model_path: Path,
    sources: tuple[SourceRecording, ...],
    tmp_path: Path,
):
    """The run's own file only tells its policy's name."""
    policy = tmp_path / "share.py"
    policy.write_text(shown_policy(), encoding="utf8")
    run_command(
        *("replay", recording.folder, "--model", model_path, "--output", tmp_path),
        *("--policy", f"{policy}:Share:share=0.5@segment=400"),
    )
    run_folder = tmp_path / "share:share=0.5@segment=400"
    assert record_run(run_folder, sources, model_path, f"{policy}:Share")[1:] == (2, ())


def test_a_run_that_translated_nothing_is_not_recorded(
    run_folder: Path, sources: tuple[SourceRecording, ...], model_path: Path
):
    """No session said what it was asked for."""
    settings = run_folder / "evaluation.json"
    content = json.loads(settings.read_text())
    del content["session"]
    settings.write_text(json.dumps(content))
    with pytest.raises(RecordingError, match="nothing was translated"):
        record_run(run_folder, sources, model_path)
    assert not (run_folder / "recording").exists()


def test_another_model_leaves_no_recording_behind(
    run_folder: Path, sources: tuple[SourceRecording, ...], tiny_path: Path
):
    """The same command with the right model must find a free place."""
    with pytest.raises(RecordingError, match="must name the model served"):
        record_run(run_folder, sources, tiny_path)
    assert not (run_folder / "recording").exists()
