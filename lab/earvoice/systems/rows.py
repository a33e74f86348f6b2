"""A system's results: rows of the results page, kept in its work folder.

SYSTEM.differences.tsv   paired differences
SYSTEM.tsv               a row per test set and setting; written last, so it marks completion
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from math import nan
from pathlib import Path
from typing import TypeVar

from earvoice.evaluation.bootstrap import Estimate
from earvoice.runtime.files import atomic_write


@dataclass(frozen=True)
class Row:
    """Quality and latency of a system on a test set.

    Attributes:
        trained: which of a system's trainings; empty if there is only one.
        written_with: the policy's parameters.
        laal: nan if nothing was written, or the times are unknown.
        laal_unit: ``ms``, or ``words`` if the source is text.
        baseline_bleu: BLEU of always writing the commonest training sentence.
    """

    system: str
    paper: str
    test_set: str
    inputs: int
    bleu: float
    bleu_low: float
    bleu_high: float
    wer: float
    baseline_bleu: float
    trained: str = ""
    written_with: str = ""
    laal: float = nan
    laal_unit: str = "ms"


@dataclass(frozen=True)
class Difference:
    """A paired difference with its 95 % interval; ``unit`` is BLEU or WER."""

    system: str
    compared: str
    value: float
    low: float
    high: float
    unit: str

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.value, self.low, self.high)


RowT = TypeVar("RowT", Row, Difference)
_DIFFERENCES = ".differences.tsv"


def rows_path(work: Path, system: str) -> Path:
    return work / f"{system}.tsv"


def write_rows(
    work: Path, system: str, rows: Sequence[Row], differences: Sequence[Difference]
) -> None:
    work.mkdir(parents=True, exist_ok=True)
    _write(work / f"{system}{_DIFFERENCES}", Difference, differences)
    _write(rows_path(work, system), Row, rows)


def read_rows(work: Path) -> tuple[list[Row], list[Difference]]:
    """Return the rows and differences of all systems in a folder, ordered by system name."""
    rows: list[Row] = []
    differences: list[Difference] = []
    for path in sorted(work.glob("*.tsv")):
        if not path.name.endswith(_DIFFERENCES):
            rows += _read(path, Row)
            differences += _read(path.with_name(f"{path.stem}{_DIFFERENCES}"), Difference)
    return rows, differences


def _write(path: Path, kind: type[RowT], rows: Sequence[RowT]) -> None:
    with atomic_write(path) as partial, partial.open("w", encoding="utf8", newline="") as file:
        writer = csv.DictWriter(
            file, [field.name for field in fields(kind)], delimiter="\t", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def _read(path: Path, kind: type[RowT]) -> list[RowT]:
    types = {"str": str, "int": int, "float": float}
    with path.open(encoding="utf8", newline="") as file:
        return [
            kind(**{field.name: types[str(field.type)](row[field.name]) for field in fields(kind)})
            for row in csv.DictReader(file, delimiter="\t")
        ]
