"""`make gpu`, run small on the CPU; without a GPU it says that there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
NO_DEVICE = 69


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/gpu.py", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


def test_every_step_gives_numbers_on_the_cpu(tmp_path: Path) -> None:
    """The same code on another device: rows are printed and written, and none has failed."""
    path = tmp_path / "gpu.json"
    sizes = ["--sessions", "1", "--seconds", "3", "--precisions", "fp32", "--minutes", "14"]
    done = run("--device", "cpu", *sizes, "--models", "shipped", "small", "--json", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(path.read_text())
    steps = ["machine", "same words", "shipped, fp32", "device tests", "golden run"]
    assert [row["step"] for row in rows] == [*steps, "training small", "small, fp32"]
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == [r["step"] for r in rows]
    by_step = {row["step"]: row for row in rows}
    assert by_step["same words"]["same_as_on_the_cpu"]
    assert by_step["same words"]["words"]
    assert by_step["training small"]["steps_per_s"] > 0
    for step in ("shipped, fp32", "small, fp32"):
        assert by_step[step]["audio_s_per_s"] > 0
        assert by_step[step]["segment_lag_p95_ms"] > 0


def test_a_step_that_fails_is_told_and_others_follow(tmp_path: Path) -> None:
    """A number format that this device has not: a row of its own, and an exit status."""
    path = tmp_path / "gpu.json"
    sizes = ["--sessions", "1", "--seconds", "1", "--precisions", "fp16"]
    # The golden run is the other test's.
    without = {"EARVOICE_SHARED_DATA": str(tmp_path)}
    done = run("--device", "cpu", *sizes, "--models", "small", "--json", str(path), **without)
    assert done.returncode == 1
    rows = {row["step"]: row for row in json.loads(path.read_text())}
    assert "failed" in rows["small, fp16"]
    assert rows["training small"]["steps_per_s"] > 0


def test_without_a_gpu_it_says_so() -> None:
    """With an exit status of its own, and no row."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = run()
    assert done.returncode == NO_DEVICE
    assert "no CUDA device" in done.stdout
