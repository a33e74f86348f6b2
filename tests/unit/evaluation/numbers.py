"""Instances out of tables of numbers."""

from __future__ import annotations

import csv
from pathlib import Path

from earvoice.evaluation.instance import Instance, snap_to_end
from tests.shared_data import ROOT

EXCERPT = ROOT / "tests" / "data" / "latency" / "tst-common-en-de.excerpt.tsv"


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
