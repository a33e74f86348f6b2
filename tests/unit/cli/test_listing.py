"""The list of presets."""

import json

import pytest

from earvoice.cli.__main__ import main
from earvoice.client.preset import PAPERS, PRESETS
from earvoice.policies import parse_policy


def test_every_preset_is_listed(capsys):
    """By name, under its paper."""
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert names == [preset.name for preset in PRESETS]
    assert set(PAPERS.values()) <= set(lines)


@pytest.mark.parametrize("index", [0, -1])
def test_the_list_can_be_read_by_machines(capsys, index):
    """A policy is written as ``--policy`` takes it."""
    main(["presets", "--format", "json"])
    listed = json.loads(capsys.readouterr().out)[index]
    assert listed["name"] == PRESETS[index].name
    assert parse_policy(listed["policy"]) == PRESETS[index].policy
