"""The page, the figure and the table of all numbers."""

from __future__ import annotations

import csv

import pytest

from earvoice.claims.claim import CLAIMS, TRAINING_CLAIMS
from earvoice.claims.plan import TRAINING, TRAINING_PART, TRUNCATION, parts, plan
from earvoice.claims.report import write_report
from earvoice.claims.training_study import TrainingFolders, read_study
from earvoice.client.policy import FrameSchedule
from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.recording import Grid
from earvoice.evaluation.replay.setting import parse_settings
from tests.lab.claims.tiny_results import HEADS, LAYERS, write_folder

RATE_HERTZ = 16_000
LENGTH = 20 * RATE_HERTZ


def test_names_of_settings_can_be_read_back():
    """A folder's name says the whole setting, and no two settings share one."""
    settings = dict.fromkeys((*plan(LAYERS, HEADS), *TRUNCATION))
    assert [list(parse_settings(setting.name)) for setting in settings] == [
        [setting] for setting in settings
    ]


def test_recorded_grids_hold_every_boundary():
    """Every segment and initial wait of a part ends where something was recorded for it."""
    for part in (*parts(LAYERS, HEADS).values(), TRAINING_PART):
        recorded = [Grid(grid_ms) for grid_ms in part.grids_ms]
        known = {end for grid in recorded for end in grid.boundaries(RATE_HERTZ, LENGTH)}
        for setting in part.settings:
            assert set(asked_grid(setting).boundaries(RATE_HERTZ, LENGTH)) <= known


def asked_grid(setting):
    policy = setting.policy
    if isinstance(policy, FrameSchedule):
        stride_ms = 10 * policy.stride_frames
        return Grid(stride_ms, 10 * policy.wait_frames - stride_ms)
    return Grid(setting.segment_ms, setting.initial_wait_ms or 0)


def test_page_is_whole_and_the_same_each_time(tmp_path):
    """The page has every claim and checkpoint, and the same logs give the same bytes."""
    write_folder(tmp_path / "one", "one")
    write_folder(tmp_path / "two", "two")
    pages = []
    for place in ("docs", "again"):
        folder = tmp_path / place
        folder.mkdir()
        checkpoints = [tmp_path / "one", tmp_path / "two"]
        write_report(checkpoints, TrainingFolders(), folder / "results.md")
        pages.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert pages[0] == pages[1]
    text = pages[0]["results.md"].decode()
    headings = [line.split(".")[0] for line in text.splitlines() if line.startswith("### ")]
    claims = [heading for heading in headings if heading.removeprefix("### ").isdigit()]
    assert claims == [f"### {number}" for number in range(1, 20)]
    assert all(f". {claim.statement}\n" in text for claim in (*CLAIMS, *TRAINING_CLAIMS))
    with (tmp_path / "docs" / "results.tsv").open(encoding="utf8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == 2 * len(plan(LAYERS, HEADS))
    assert {row["checkpoint"] for row in rows} == {"one", "two"}


def test_incomplete_log_is_refused(tmp_path):
    """A setting that stopped half way would be compared on other inputs."""
    write_folder(tmp_path / "one", "one")
    log = next((tmp_path / "one" / "settings").glob("edatt*")) / "instances.log"
    log.write_text(log.read_text(encoding="utf8").splitlines(keepends=True)[0], encoding="utf8")
    with pytest.raises(LogError, match="6 lists were given for 1 recordings"):
        write_report([tmp_path / "one"], TrainingFolders(), tmp_path / "results.md")


def test_trainings_on_fewer_inputs(tmp_path):
    """Trainings may be compared on a part of the test set; all their numbers are told."""
    write_folder(tmp_path / "one", "one")
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        write_folder(folder, f"snapshot {folder.name}", inputs=3, settings=TRAINING)
    compared = TrainingFolders(snapshots=folders, distilled=folders[:2])
    write_report([tmp_path / "one"], compared, tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text(encoding="utf8")
    assert text.count("\n| snapshot a | `0123456789ab` | 3 |") == 1
    assert f"{TRAINING[1].name}, 3 snapshots |" in text
    assert "| snapshot b less snapshot a: EDAtt, at equal LAAL |" in text
    with (tmp_path / "results.tsv").open(encoding="utf8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    of_trainings = [row for row in rows if row["checkpoint"].startswith("snapshot")]
    assert len(of_trainings) == 3 * len(TRAINING)
    assert {row["inputs"] for row in of_trainings} == {"3"}


def test_truncated_inputs_have_a_section_of_their_own(tmp_path):
    """What no paper claims stands apart from the claims, and only where it was run."""
    write_folder(tmp_path / "one", "one")
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        write_folder(folder, f"training {folder.name}", inputs=3, settings=TRUNCATION)
    compared = TrainingFolders(truncated=folders)
    write_report([tmp_path / "one"], compared, tmp_path / "results.md")
    _, section = (tmp_path / "results.md").read_text(encoding="utf8").split("## Truncated inputs")
    section = section.split("\n## ")[0]
    assert "no claim of a paper" in section
    assert "| setting | training a | training b |" in section
    assert section.count("\n| AlignAtt: frames ") == 3
    assert "| training b less training a: AlignAtt, at equal LAAL |" in section


def test_trainings_on_different_inputs_are_refused(tmp_path):
    """Results that are not paired cannot be compared."""
    write_folder(tmp_path / "a", "a", inputs=3, settings=TRAINING)
    write_folder(tmp_path / "b", "b", inputs=4, settings=TRAINING)
    with pytest.raises(ValueError, match="b has other inputs"):
        read_study(TrainingFolders(distilled=[tmp_path / "a", tmp_path / "b"]))


def test_two_checkpoints_of_one_name_are_refused(tmp_path):
    """A label names one checkpoint, also across the claims."""
    for name in ("a", "b"):
        write_folder(tmp_path / name, "same", inputs=3, settings=TRAINING)
    folders = TrainingFolders(snapshots=[tmp_path / "a"], wait_k=[tmp_path / "b"])
    with pytest.raises(ValueError, match="'same'"):
        read_study(folders)


def test_checkpoint_that_was_not_run_is_refused(tmp_path):
    """A folder without any setting that compares trainings is a mistake."""
    write_folder(tmp_path / "a", "a", inputs=3, settings=plan(LAYERS, HEADS)[:1])
    with pytest.raises(ValueError, match="holds no result"):
        read_study(TrainingFolders(snapshots=[tmp_path / "a"]))
