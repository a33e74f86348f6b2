"""The page, the figure and the table of all numbers."""

from __future__ import annotations

import csv

import pytest

from earvoice.claims.claim import CLAIMS
from earvoice.claims.plan import grid_ms, plan
from earvoice.claims.report import write_report
from earvoice.client.policy import FrameSchedule
from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.replay.setting import parse_settings
from tests.lab.claims.tiny_results import HEADS, LAYERS, write_folder


def test_names_of_settings_can_be_read_back():
    """A folder's name says the whole setting, and no two settings share one."""
    settings = plan(LAYERS, HEADS)
    assert [list(parse_settings(setting.name)) for setting in settings] == [
        [setting] for setting in settings
    ]


def test_recorded_grids_hold_every_boundary():
    """Every segment and initial wait of the plan ends where something was recorded."""
    for setting in plan(LAYERS, HEADS):
        grid = grid_ms(setting)
        if isinstance(setting.policy, FrameSchedule):
            first_ms, segment_ms = (
                setting.policy.wait_frames * 10,
                setting.policy.stride_frames * 10,
            )
        else:
            segment_ms = setting.segment_ms
            first_ms = segment_ms + (setting.initial_wait_ms or 0)
        assert first_ms % grid == 0
        assert segment_ms % grid == 0


def test_page_is_whole_and_the_same_each_time(tmp_path):
    """The page has every claim and checkpoint, and the same logs give the same bytes."""
    words = write_folder(tmp_path / "one", "one")
    write_folder(tmp_path / "two", "two")
    pages = []
    for place in ("docs", "again"):
        folder = tmp_path / place
        folder.mkdir()
        write_report([tmp_path / "one", tmp_path / "two"], words, [], folder / "results.md")
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
    words = write_folder(tmp_path / "one", "one")
    log = next((tmp_path / "one" / "settings").glob("edatt*")) / "instances.log"
    log.write_text(log.read_text(encoding="utf8").splitlines(keepends=True)[0], encoding="utf8")
    with pytest.raises(LogError, match="6 lists were given for 1 recordings"):
        write_report([tmp_path / "one"], words, [], tmp_path / "results.md")
