"""The tables of curves: every point, and every line at given latencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import get_args

import numpy as np

from earvoice.evaluation.clock import Clock
from earvoice.evaluation.corpus_score import metric_names
from earvoice.evaluation.curve.line import CurveLine, quality_at
from earvoice.evaluation.curve.point import CurvePoint
from earvoice.evaluation.curve.resampling import Resampler
from earvoice.evaluation.resampling import Floats, band

Cell = str | float | int | None

_SHOWN = ("line", "point", "BLEU", "BLEU low", "BLEU high", "core-s / h", "length ratio")
_MISSING = "-"


def point_rows(lines: Sequence[CurveLine], resampler: Resampler) -> list[dict[str, Cell]]:
    """Return a row for each point: its scores on every clock, with BLEU's band."""
    return [_describe(line, point, resampler) for line in lines for point in line.points]


def latency_rows(
    lines: Sequence[CurveLine],
    latencies_ms: Sequence[float],
    metric: str,
    clocks: Sequence[Clock],
    resampler: Resampler,
) -> Iterator[dict[str, Cell]]:
    """Yield a row for each line at each latency: BLEU, its band, and the gap to the first line.

    ``p`` is the two-sided share of resampled test sets that contradict the gap's sign.
    """
    for clock, latency_ms in product(clocks, latencies_ms):
        first_bleu, first_samples = quality_at(lines[0], latency_ms, metric, clock, resampler)
        for line in lines:
            bleu, samples = quality_at(line, latency_ms, metric, clock, resampler)
            gap = None if bleu is None or first_bleu is None else bleu - first_bleu
            gaps = samples - first_samples
            low, high = band(samples) or (None, None)
            gap_low, gap_high = band(gaps) or (None, None)
            other = line is not lines[0] and gap is not None
            yield {
                "latency": f"{metric} {clock}",
                "ms": latency_ms,
                "line": line.name,
                "BLEU": bleu,
                "low": low,
                "high": high,
                f"gap to {lines[0].name}": gap if other else None,
                "gap low": gap_low if other else None,
                "gap high": gap_high if other else None,
                "p": _contradiction(gaps) if other and gap_low is not None else None,
            }


def _contradiction(gaps: Floats) -> float:
    known = gaps[~np.isnan(gaps)]
    return min(1.0, 2 * float(min(np.mean(known <= 0), np.mean(known >= 0))))


def as_tsv(rows: Sequence[dict[str, Cell]]) -> str:
    """Return rows as lines of tab-separated cells, numbers unrounded; nothing of no rows."""
    if not rows:
        return ""
    header = list(rows[0])
    lines = [header, *([_plain(row[name]) for name in header] for row in rows)]
    return "".join("\t".join(line) + "\n" for line in lines)


def as_text(rows: Sequence[dict[str, Cell]], names: Sequence[str] | None = None) -> str:
    """Return rows as columns for people, numbers rounded; nothing of no rows."""
    if not rows:
        return ""
    header = list(names or rows[0])
    lines = [header, *([_rounded(row[name]) for name in header] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def shown_columns(metric: str, clocks: Sequence[Clock]) -> list[str]:
    """Return the columns of ``point_rows`` that people are shown."""
    latencies = [f"{metric} {clock}" for clock in clocks]
    overheads = [f"overhead {clock}" for clock in clocks if clock != "ideal"]
    return [*_SHOWN[:5], *latencies, *overheads, *_SHOWN[5:]]


def _describe(line: CurveLine, point: CurvePoint, resampler: Resampler) -> dict[str, Cell]:
    score = point.report.score
    low, high = band(resampler.bleu(point)[1:]) or (None, None)
    row: dict[str, Cell] = {
        "line": line.name,
        "point": point.name,
        "instances": score.instance_count,
        "silent": score.silent_count,
        "BLEU": point.bleu,
        "BLEU low": low,
        "BLEU high": high,
        "chrF": None if point.report.quality is None else point.report.quality.chrf,
    }
    for metric, clock in product(metric_names(), get_args(Clock)):
        if metric != "overhead" or clock != "ideal":
            row[f"{metric} {clock}"] = point.latency(metric, clock)
    row["core-s / h"] = point.core_seconds_per_hour
    row["length ratio"] = score.length_ratio
    return row


def _plain(cell: Cell) -> str:
    return "" if cell is None else str(cell)


def _rounded(cell: Cell) -> str:
    if cell is None:
        return _MISSING
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)
