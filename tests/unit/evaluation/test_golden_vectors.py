"""The metrics give what SimulEval 1.1.4's own scorers give."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from earvoice.evaluation.log import ReadingOptions, read_records
from earvoice.evaluation.log_formats import read_simuleval
from earvoice.evaluation.metrics import score_corpus

SKIPPED = (None, None)


@dataclass(frozen=True)
class Case:
    """One instance, and (ideal, computation-aware) of each metric; None where unknown."""

    delays: list[float]
    elapsed: list[float]
    scores: dict[str, tuple[float | None, float | None]]
    reference: str = "a b c d e"
    source_length: float = 3500
    unit: str = "word"


def same(value):
    return (value, value)


CASES = {
    "G1": Case(
        [1000, 1000, 2000, 3000, 3500, 3500],
        [1120, 1120, 2260, 3400, 4050, 4050],
        {
            "AL": (700, 990),
            "LAAL": (933.3333, 1223.3333),
            "AP": (0.8, 0.9142857),
            "DAL": (1125, 1407.2222),
            "ATD": (1383.3333, 1520),
            "YAAL": (875, 1100),
            "StartOffset": (1000, 1120),
            "EndOffset": (0, 550),
        },
    ),
    "G2": Case(
        [1000, 2000, 3500],
        [1100, 2200, 3900],
        {
            "AL": (1466.6667, 1700),
            "LAAL": (1466.6667, 1700),
            "AP": (0.3714286, 0.4114286),
            "DAL": (1055.5556, 1255.5556),
            "ATD": (1566.6667, 1700),
            "YAAL": (1150, 1300),
        },
    ),
    "G3 offline": Case(
        [3500, 3500],
        [4000, 4000],
        {
            "AL": (3500, 4000),
            "LAAL": (3500, 4000),
            "AP": (1, 1.1428571),
            "DAL": (3500, 4000),
            "ATD": (3050, 3550),
            "YAAL": SKIPPED,
        },
        reference="a b",
    ),
    "G4 late": Case(
        [3600, 3600],
        [4000, 4000],
        {
            "AL": (3600, 4000),
            "LAAL": (3600, 4000),
            "AP": (1.0285714, 1.1428571),
            "DAL": (3600, 4000),
            "ATD": (3150, 3550),
            "YAAL": SKIPPED,
        },
        reference="a b",
    ),
    "G8 double blank": Case(
        [1000, 1000, 2000, 3500],
        [1000, 1000, 2000, 3500],
        {
            "AL": same(825),
            "LAAL": same(825),
            "AP": same(0.4285714),
            "DAL": same(1000),
            "ATD": same(1175),
            "YAAL": same(633.3333),
        },
        reference="a  b c d",
    ),
    "G9 characters": Case(
        [1000, 1000, 1000, 2000, 2000, 2000],
        [1100, 1100, 1100, 2300, 2300, 2300],
        {
            "AL": (821.4286, 971.4286),
            "LAAL": (821.4286, 971.4286),
            "AP": (0.6428571, 0.7285714),
            "DAL": (1000, 1200),
            "ATD": (550, 700),
            "YAAL": (714.2857, 814.2857),
        },
        reference="abc def",
        source_length=2000,
        unit="char",
    ),
    "G10 negative": Case(
        [500] * 4 + [1000] * 3 + [1500] * 2,
        [600] * 4 + [1250] * 3 + [1900] * 2,
        {
            "AL": (-3111.1111, -2894.4444),
            "LAAL": (-444.4444, -227.7778),
            "AP": (0.8888889, 1.1055556),
            "DAL": (500, 600),
            "ATD": (66.6667, 194.4444),
            "YAAL": (-444.4444, -227.7778),
        },
        reference="a b c",
        source_length=3000,
    ),
}


def score(case: Case, path, *, compatible=True):
    """Write the case as a log of SimulEval, and score it."""
    units = ["w"] * len(case.delays)
    line = {
        "index": 0,
        "prediction": (" " if case.unit == "word" else "").join(units),
        "delays": case.delays,
        "elapsed": case.elapsed,
        "prediction_length": len(units),
        "reference": case.reference,
        "source": ["a.wav"],
        "source_length": case.source_length,
    }
    path.write_text(json.dumps(line), encoding="utf8")
    options = ReadingOptions(case.unit, compatible=compatible)
    return score_corpus(read_simuleval(path, read_records(path), options).instances).rows


@pytest.mark.parametrize(
    ("name", "metric"), [(name, metric) for name, case in CASES.items() for metric in case.scores]
)
def test_metric_agrees_with_simuleval(name, metric, tmp_path):
    """Each metric, ideal and computation-aware, to 1e-3."""
    means = score(CASES[name], tmp_path / "instances.log")[metric]
    for clock, expected in zip(("ideal", "simuleval"), CASES[name].scores[metric], strict=True):
        if expected is None:
            assert means[clock].count == 0
        else:
            assert means[clock].value == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("name", "units"), [("G8 double blank", 4), ("G9 characters", 6)])
def test_blanks_count_only_when_asked_for(name, units, tmp_path):
    """Without compatible splitting a reference is as long as it reads."""
    case = CASES[name]
    total = sum(case.delays) / case.source_length
    proportion = score(case, tmp_path / "instances.log", compatible=False)["AP"]["ideal"]
    assert proportion.value == pytest.approx(total / units)
