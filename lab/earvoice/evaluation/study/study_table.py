"""The rows of a study: quality and latency of each setting, and how far it is from the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from earvoice.evaluation.curve.point import CurvePoint, read_point
from earvoice.evaluation.curve.table import Cell
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.scoring import ScoringOptions
from earvoice.evaluation.study.attention_study import StudySetting


def oracle_name(segment_ms: int) -> str:
    """Return the name of the oracle's folder."""
    return f"oracle@segment={segment_ms}"


def study_rows(
    chosen: Sequence[StudySetting], more: Sequence[ReplaySetting], folder: Path, segment_ms: int
) -> list[dict[str, Cell]]:
    """Return a row for the oracle, for each setting of a part, and for each further one.

    Raises:
        LogError: a log was changed by hand.
    """
    oracle = _read(folder / oracle_name(segment_ms))
    points = {
        setting: _read(folder / setting.name)
        for setting in dict.fromkeys([*(row.setting for row in chosen), *more])
    }
    # No policy computed what the oracle says, so it has no computation-aware latency.
    rows = [_describe("oracle", "", oracle, oracle) | {"LAAL CA": None}]
    order = sorted(chosen, key=lambda row: row.part)
    rows += [_describe(row.part, row.value, points[row.setting], oracle) for row in order]
    return rows + [_describe("", "", points[setting], oracle) for setting in more]


def _read(folder: Path) -> CurvePoint:
    return read_point(folder, ScoringOptions())


def _describe(part: str, value: str, point: CurvePoint, oracle: CurvePoint) -> dict[str, Cell]:
    return {
        "part": part,
        "value": value,
        "setting": point.name,
        "BLEU": point.bleu,
        "AL": point.latency("AL", "ideal"),
        "LAAL": point.latency("LAAL", "ideal"),
        "LAAL CA": point.latency("LAAL", "simuleval"),
        "BLEU below oracle": _difference(oracle.bleu, point.bleu),
        "LAAL above oracle": _difference(
            point.latency("LAAL", "ideal"), oracle.latency("LAAL", "ideal")
        ),
        "length ratio": point.report.score.length_ratio,
    }


def _difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second
