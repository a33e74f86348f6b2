"""A policy of one's own, in a file, through services that the command starts for its run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from earvoice.evaluation.log import read_records
from tests.e2e.running import earvoice
from tests.own_policy import shown_policy

pytestmark = pytest.mark.torch

RECORDING = Path(__file__).parents[2] / "demo" / "librispeech_1995-1837-0001.wav"


def beside_the_policy(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    (folder / "share.py").write_text(shown_policy(), encoding="utf8")
    return earvoice(*arguments, cwd=folder)


def test_commands_take_a_file(tmp_path: Path):
    """Nothing is committed before the end with a share of 0, much before it with all.

    The settings of `evaluate` say which policy it was, and its parameters.
    """
    policy = ("--policy", "share.py:Share:share=0.0", "--to", "de")
    done = beside_the_policy(tmp_path, "translate", RECORDING, *policy, "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    late_ms = min(line["delay_ms"] for line in lines if line["type"] == "word")
    (tmp_path / "wavs.txt").write_text(f"{RECORDING}\n")
    policy = ("--policy", "share.py:Share:share=1.0", "--output", "run")
    done = beside_the_policy(tmp_path, "evaluate", "--source", "wavs.txt", "--to", "de", *policy)
    assert done.returncode == 0, done.stderr
    record = read_records(tmp_path / "run" / "instances.log")[0]
    assert record.text("prediction")
    assert record.numbers("delays")[0] < late_ms
    settings = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert settings["session"]["options"]["policy"] == {"name": "share", "share": 1.0}


def test_what_cannot_be_used_is_told_before_anything_starts(tmp_path: Path):
    """The parameter, its value and what is allowed."""
    done = beside_the_policy(tmp_path, "translate", RECORDING, "--policy", "share.py:Share:share=2")
    assert done.returncode == 2
    assert "share.py:Share:share = 2.0 is not allowed; allowed: a number" in done.stderr
