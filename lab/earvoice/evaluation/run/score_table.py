"""``scores.tsv``: a report as a table for programs."""

from __future__ import annotations

from collections.abc import Iterator

from earvoice.evaluation.report import Report

SCORES_NAME = "scores.tsv"
_HEADER = ("metric", "clock", "value", "instances")


def score_table(report: Report) -> str:
    """Return lines of metric, clock, value (unrounded) and the number of instances, by tabs.

    The clock is empty where a metric has none; what has no value is left out.
    """
    rows = [_HEADER, *_rows(report)]
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def _rows(report: Report) -> Iterator[tuple[str, str, float, int]]:
    score = report.score
    for metric, means in score.rows.items():
        for clock, mean in means.items():
            if mean.value is not None:
                yield metric, clock, mean.value, mean.count
    for metric, value in (("RTF", score.real_time_factor), ("length ratio", score.length_ratio)):
        if value is not None:
            yield metric, "", value, score.instance_count
    if report.quality is not None:
        yield "BLEU", "", report.quality.bleu, score.instance_count
        yield "chrF", "", report.quality.chrf, score.instance_count
