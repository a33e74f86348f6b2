"""Instances out of tables of numbers."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from earvoice.evaluation.instance import Instance, snap_to_end

ROOT = Path(__file__).parents[3]
EXCERPT = ROOT / "tests" / "data" / "latency" / "tst-common-en-de.excerpt.tsv"


def shared_latency_data() -> Path:
    """Return the folder of the full data, or skip the test aloud."""
    shared = Path(os.environ.get("EARVOICE_SHARED_DATA", ROOT.parent / "shared"))
    folder = shared / "data" / "latency"
    if not folder.is_dir():
        pytest.skip("the full latency data is not here (EARVOICE_SHARED_DATA or ../shared)")
    return folder


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def instance_of_row(row: dict[str, str]) -> Instance:
    source_length_ms = float(row["source_length_ms"])
    delays_ms = [float(delay) for delay in row["delays_ms"].split()]
    return make_instance(
        snap_to_end(delays_ms, source_length_ms),
        tuple(float(elapsed) for elapsed in row["elapsed_ms"].split()),
        source_length_ms,
        int(row["reference_words"]),
    )


def make_instance(delays_ms, elapsed_ms, source_length_ms, reference_units, clock="simuleval"):
    return Instance(
        name="made",
        unit="word",
        source_length_ms=source_length_ms,
        delays_ms=tuple(delays_ms),
        elapsed_ms={clock: tuple(elapsed_ms)},
        reference_units=reference_units,
    )


def shared_runs() -> list[Path]:
    shared = Path(os.environ.get("EARVOICE_SHARED_DATA", ROOT.parent / "shared"))
    runs = sorted((shared / "golden" / "runs").glob("v10_*.json.gz"))
    if not runs:
        pytest.skip("the recorded runs are not here (EARVOICE_SHARED_DATA or ../shared)")
    return runs
