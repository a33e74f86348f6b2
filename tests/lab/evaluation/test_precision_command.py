"""``earvoice precision`` translates a test set in several number formats and notes the verdict."""

import json
import shutil
from pathlib import Path

import pytest

from earvoice.models.checkpoint import load_checkpoint
from tests.lab.evaluation.commands import run_command

pytestmark = pytest.mark.torch


def test_verdict_is_printed_and_kept(
    test_set: Path, model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A line a format, fp32 equal to itself; the config keeps it, a dry run leaves it alone."""
    model = tmp_path / "model"
    shutil.copytree(model_path, model)
    before = load_checkpoint(model).hash
    arguments = (
        *("precision", "--model", model, "--source", test_set / "wavs.txt"),
        *("--target", test_set / "refs.txt", "--precisions", "int8"),
    )
    run_command(*arguments, "--dry-run")
    assert load_checkpoint(model).hash == before
    run_command(*arguments)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["inputs", "fp32", "int8"] * 2
    assert lines[1][1:3] == ["2", "100.00"]
    assert float(lines[1][3]) > 0
    kept = json.loads((model / "config.json").read_text())["precision_trials"]
    assert [(trial["precision"], trial["target_language"]) for trial in kept] == [("int8", "de")]
    assert 100 * kept[0]["equal_share"] == float(lines[-1][2])
    assert load_checkpoint(model).hash != before


def test_languages_and_limits_are_checked(test_set: Path, model_path: Path):
    """A language that the model does not write, and a limit of nothing, are named."""
    arguments = (
        *("precision", "--model", model_path, "--source", test_set / "wavs.txt"),
        *("--target", test_set / "refs.txt"),
    )
    with pytest.raises(SystemExit, match="--to fr is not written; allowed: de"):
        run_command(*arguments, "--to", "fr")
    with pytest.raises(SystemExit, match="--limit 0 is not allowed"):
        run_command(*arguments, "--limit", 0)
