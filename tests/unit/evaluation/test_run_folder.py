"""A run's folder: what is finished stays, and only the same run goes on."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from earvoice.cli.command import CommandError
from earvoice.evaluation.log import LogError
from earvoice.evaluation.run_folder import EvaluationFolder, RunProgress
from earvoice.evaluation.source_set import SourceRecording
from tests.unit.evaluation.session import short_session

SETTINGS = {"recordings": [["a.wav", 1]], "options": {"policy": {"name": "edatt", "alpha": 0.2}}}
SESSION = {"model": "m", "model_hash": "f00"}


def line(index):
    return short_session(index=index)


def test_finished_recordings_are_kept_in_order(tmp_path):
    """They are written as they finish, and put into order at the end."""
    folder = EvaluationFolder(tmp_path / "run", SETTINGS)
    folder.append(line(2))
    folder.append(line(0))
    again = EvaluationFolder(tmp_path / "run", SETTINGS)
    assert again.finished() == {0, 2}
    again.append(line(1))
    again.complete("word")
    indices = [json.loads(text)["index"] for text in again.log.read_text().splitlines()]
    assert indices == [0, 1, 2]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"config.yaml", "evaluation.json", "instances.log", "simulstream.jsonl"}


def test_a_torn_line_is_dropped(tmp_path):
    """A killed run leaves half a line: that recording is translated again."""
    folder = EvaluationFolder(tmp_path, SETTINGS)
    folder.append(line(0))
    with folder.log.open("a") as file:
        file.write('{"index": 1, "pred')
    assert EvaluationFolder(tmp_path, SETTINGS).finished() == {0}


def test_two_runs_at_once_are_noticed(tmp_path):
    """A recording that was written twice would count twice."""
    folder = EvaluationFolder(tmp_path, SETTINGS)
    for index in (0, 1, 0):
        folder.append(line(index))
    with pytest.raises(LogError, match="2 lines of index 0: must be one"):
        folder.finished()


def test_a_finished_recording_of_another_test_set_is_refused(tmp_path):
    """Its name, length and reference are in the log; where it lies may change."""
    folder = EvaluationFolder(tmp_path, SETTINGS)
    folder.append(line(0))
    written = json.loads(folder.log.read_text())
    name, length_ms, reference = (
        Path(written["source"][0]).name,
        written["source_length"],
        written["reference"],
    )
    folder.check_sources(
        [
            SourceRecording(0, Path("elsewhere") / name, length_ms, reference),
            SourceRecording(1, Path("new.wav"), 1.0, ""),
        ]
    )
    for other in (
        SourceRecording(0, Path("other.wav"), length_ms, reference),
        SourceRecording(0, Path(name), length_ms + 500, reference),
        SourceRecording(0, Path(name), length_ms, "Sonst nichts."),
    ):
        with pytest.raises(CommandError, match="of another test set: recording 0 is"):
            folder.check_sources([other])
    with pytest.raises(CommandError, match=r"recording 0 is .* there, and none of the recordings"):
        folder.check_sources([SourceRecording(1, Path("new.wav"), 1.0, "")])


def test_another_run_is_refused_by_what_differs(tmp_path):
    """Half a run with other options would be no result; the message names the option."""
    EvaluationFolder(tmp_path, SETTINGS).append(line(0))
    changed = {**SETTINGS, "options": {"policy": {"name": "edatt", "alpha": 0.4}}}
    with pytest.raises(CommandError, match=r"another options\.policy\.alpha: 0\.2 there, 0\.4 now"):
        EvaluationFolder(tmp_path, changed)


def test_a_run_goes_on_from_another_working_folder(tmp_path):
    """Its recordings are known by their names and digests, not by the way to them."""
    EvaluationFolder(tmp_path, SETTINGS).append(line(0))
    moved = {**SETTINGS, "recordings": [["../elsewhere/a.wav", 1]]}
    assert EvaluationFolder(tmp_path, moved).finished() == {0}
    for other in ([["b.wav", 1]], [["a.wav", 2]]):
        with pytest.raises(CommandError, match="another recordings"):
            EvaluationFolder(tmp_path, {**SETTINGS, "recordings": other})


def test_a_run_of_before_an_option_was_told_goes_on(tmp_path):
    """It had what is usual."""
    EvaluationFolder(tmp_path, SETTINGS).append(line(0))
    now = {**SETTINGS, "options": {**SETTINGS["options"], "transcript": False}}
    assert EvaluationFolder(tmp_path, now).finished() == {0}
    now["options"]["transcript"] = True
    with pytest.raises(CommandError, match=r"options\.transcript: false there, true now"):
        EvaluationFolder(tmp_path, now)


def test_a_run_that_finished_nothing_may_be_begun_anew(tmp_path):
    """A mistyped option, which the server refused, is not held against the right one."""
    EvaluationFolder(tmp_path, {**SETTINGS, "options": {"segment_ms": 7}}).check_session(SESSION)
    folder = EvaluationFolder(tmp_path, SETTINGS)
    folder.check_session({**SESSION, "model": "other"})
    assert json.loads((tmp_path / "evaluation.json").read_text())["options"] == SETTINGS["options"]


def test_another_model_is_refused(tmp_path):
    """A run goes on only with the services it was begun with."""
    begun = EvaluationFolder(tmp_path, SETTINGS)
    begun.check_session(SESSION)
    begun.append(line(0))
    folder = EvaluationFolder(tmp_path, SETTINGS)
    folder.check_session(SESSION)
    with pytest.raises(CommandError, match=r'another session\.model_hash: "f00" there, "bad" now'):
        folder.check_session({**SESSION, "model_hash": "bad"})


def test_a_log_of_something_else_is_not_touched(tmp_path):
    """A folder of another tool is refused."""
    (tmp_path / "instances.log").write_text("{}\n")
    with pytest.raises(CommandError, match="give another --output"):
        EvaluationFolder(tmp_path, SETTINGS)
    assert (tmp_path / "instances.log").read_text() == "{}\n"


def test_progress_stays_on_one_line_of_a_narrow_terminal(monkeypatch):
    """A line that wraps would leave pieces behind; at the end nothing is left."""
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "24")
    progress = RunProgress("record", total=200, finished=0)
    progress.count(60_000)
    progress.close()
    shown, *erased = terminal.getvalue().split("\r")[1:]
    assert shown == "record: 1 of 200 record"
    assert "".join(erased).strip() == ""
