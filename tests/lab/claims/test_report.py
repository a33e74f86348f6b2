"""The page, the figure and the table of all numbers."""

from __future__ import annotations

import csv

import pytest

from earvoice.claims.claim import CLAIMS
from earvoice.claims.plan import parts, plan
from earvoice.claims.report import write_report
from earvoice.client.policy import FrameSchedule
from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.recording import Grid
from earvoice.evaluation.replay.setting import parse_settings
from tests.lab.claims.tiny_results import HEADS, LAYERS, write_folder

RATE_HERTZ = 16_000
LENGTH = 20 * RATE_HERTZ


def test_names_of_settings_can_be_read_back():
    """A folder's name says the whole setting, and no two settings share one."""
    settings = plan(LAYERS, HEADS)
    assert [list(parse_settings(setting.name)) for setting in settings] == [
        [setting] for setting in settings
    ]


def test_recorded_grids_hold_every_boundary():
    """Every segment and initial wait of a part ends where something was recorded for it."""
    for part in parts(LAYERS, HEADS).values():
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
        write_report([tmp_path / "one", tmp_path / "two"], [], folder / "results.md")
        pages.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert pages[0] == pages[1]
    text = pages[0]["results.md"].decode()
    assert all(f"### {claim.number}. {claim.statement}" in text for claim in CLAIMS)
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
        write_report([tmp_path / "one"], [], tmp_path / "results.md")
