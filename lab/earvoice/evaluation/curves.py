"""``earvoice curves``: quality over latency, from sweeps and from existing logs.

Each scored log is a point, and the points of a policy form a line.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from earvoice.cli.command import Command, CommandError, ExitCode, Interruption, run_async
from earvoice.cli.server_choice import choose_server, open_client
from earvoice.client.errors import TranslationError
from earvoice.evaluation.bootstrap import CONFIDENCE, Bootstrap, Floats, band, sentence_statistics
from earvoice.evaluation.evaluate import (
    add_session_arguments,
    check_session_options,
    choose_session,
    score_run,
    tell_failures,
    translate_set,
)
from earvoice.evaluation.instance import Clock, ElapsedClock, Instance
from earvoice.evaluation.log import LogError
from earvoice.evaluation.metrics import METRICS, score_instance
from earvoice.evaluation.quality import word_error_counts
from earvoice.evaluation.replay.setting import ReplaySetting, parse_settings
from earvoice.evaluation.run_folder import LOG_NAME
from earvoice.evaluation.score import Report, ScoringOptions, score_log
from earvoice.evaluation.source_set import add_source_arguments, read_scoring, read_source_set

Measure = Literal["BLEU", "% right"]
"""Measures of quality; for captions the percentage of words that are right, 100 - WER."""

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class CurvePoint:
    """A scored log.

    Attributes:
        name: of its folder; ``POLICY:KEY=VALUE,...@KEY=VALUE,...`` if a sweep wrote it.
        language: of the target, BCP-47; empty if unknown.
    """

    name: str
    report: Report
    instances: tuple[Instance, ...]
    language: str

    @property
    def policy(self) -> str:
        """The policy's name; the folder's whole name if no sweep wrote it."""
        return re.split("[:@]", self.name, maxsplit=1)[0]

    @property
    def choices(self) -> Mapping[str, str]:
        assignments = re.split("[:@,]", self.name)[1:]
        return dict(part.split("=", 1) for part in assignments if "=" in part)

    @property
    def bleu(self) -> float | None:
        return None if self.report.quality is None else self.report.quality.bleu

    @property
    def core_seconds_per_hour(self) -> float | None:
        """Computation of the services per hour of audio, in seconds of one core."""
        factor = self.report.score.real_time_factor
        return None if factor is None else factor * _SECONDS_PER_HOUR

    def latency(self, metric: str, clock: Clock) -> float | None:
        """Return a corpus score; None if the log lacks the clock."""
        mean = self.report.score.rows[metric].get(clock)
        return None if mean is None else mean.value

    def values(self, metric: str, clock: Clock) -> Floats:
        """Return each instance's score, [N]; nan where it has none."""
        scores = (score_instance(instance, metric, clock) for instance in self.instances)
        return np.array([np.nan if score is None else score for score in scores], np.float64)

    @cached_property
    def statistics(self) -> Floats:
        """Each instance's BLEU statistics, [N, 10]; nan without a reference."""
        rows = sentence_statistics(
            [instance.prediction for instance in self.instances],
            [instance.reference or "" for instance in self.instances],
            self.language,
        )
        rows[[instance.reference is None for instance in self.instances]] = np.nan
        return rows

    @cached_property
    def word_errors(self) -> Floats:
        """Each instance's word errors and the words of its reference, [N, 2]; nan without one."""
        counts = word_error_counts(
            [instance.prediction for instance in self.instances],
            [instance.reference or "" for instance in self.instances],
            self.language,
        )
        rows = np.array(counts, np.float64)
        rows[[instance.reference is None for instance in self.instances]] = np.nan
        return rows

    def quality(self, bootstrap: Bootstrap, measure: Measure = "BLEU") -> Floats:
        """Return the quality of the translations in every draw, [R + 1]."""
        if measure == "BLEU":
            return bootstrap.bleu(self.statistics)
        return bootstrap.right_words(self.word_errors)


CurveLine = tuple[str, tuple[CurvePoint, ...]]
"""A name and the points of the line."""


def find_points(folder: Path) -> list[Path]:
    """Return the folders in and below a folder that contain a log, sorted by name."""
    found = sorted(log.parent for log in folder.rglob(LOG_NAME))
    if not found:
        raise LogError(str(folder), f"no {LOG_NAME} in it or below it")
    return found


def read_point(folder: Path, options: ScoringOptions) -> CurvePoint:
    return CurvePoint(folder.resolve().name, *score_log(folder, options))


def group_points(points: Sequence[CurvePoint], keys: Sequence[str]) -> list[CurveLine]:
    """Return a line for each combination of policy and values of the given keys."""
    check_same_set(points)
    groups: dict[str, list[CurvePoint]] = {}
    for point in points:
        apart = [f"{key}={point.choices[key]}" for key in keys if key in point.choices]
        groups.setdefault(" ".join([point.policy, *apart]), []).append(point)
    return [(name, tuple(group)) for name, group in groups.items()]


def check_same_set(points: Sequence[CurvePoint]) -> None:
    first = points[0]
    references = [instance.reference for instance in first.instances]
    for point in points[1:]:
        if [instance.reference for instance in point.instances] != references:
            raise LogError(point.report.path, f"is not of the same test set as {first.report.path}")


def quality_at(
    points: Sequence[CurvePoint],
    latency_ms: float,
    metric: str,
    clock: Clock,
    bootstrap: Bootstrap,
    measure: Measure = "BLEU",
) -> Floats:
    """Return quality at a latency in every draw, [R + 1]; nan outside a line's points.

    Points without references or without the clock are left out.
    """
    known = [
        point
        for point in points
        if point.bleu is not None and point.latency(metric, clock) is not None
    ]
    if not known:
        return np.full(bootstrap.resamples + 1, np.nan)
    latencies_ms = np.stack([bootstrap.mean(point.values(metric, clock)) for point in known])
    quality = np.stack([point.quality(bootstrap, measure) for point in known])
    return interpolate(latencies_ms, quality, np.array([latency_ms]))[:, 0]


def interpolate(latencies_ms: Floats, values: Floats, wanted_ms: Floats) -> Floats:
    """Return values at latencies on the straight lines between points (Papi 2023, footnote 8).

    Args:
        latencies_ms: [P, D], in any order; nan leaves a point out of a draw.
        values: [P, D].
        wanted_ms: [L].

    Returns:
        [D, L]; nan outside a draw's points.
    """
    # Ties in latency are sorted by value, so that the order of the points does not matter.
    order = np.lexsort((values, latencies_ms), axis=0)
    latencies_ms = np.take_along_axis(latencies_ms, order, 0)
    values = np.take_along_axis(values, order, 0)
    draws = np.arange(latencies_ms.shape[1])[:, None]
    last = (~np.isnan(latencies_ms)).sum(0)[:, None] - 1
    passed = (latencies_ms[:, :, None] <= wanted_ms).sum(0)
    left = np.clip(passed - 1, 0, np.maximum(last - 1, 0))
    right = np.minimum(left + 1, np.maximum(last, 0))
    near_ms, far_ms = latencies_ms[left, draws], latencies_ms[right, draws]
    span_ms = far_ms - near_ms
    # Between two points of equal latency there is nothing to interpolate.
    passed_ms = np.clip(wanted_ms - near_ms, 0, span_ms)
    share = np.divide(passed_ms, span_ms, out=np.zeros_like(span_ms), where=span_ms > 0)
    found = values[left, draws] + share * (values[right, draws] - values[left, draws])
    reached = (last >= 0) & (latencies_ms[0][:, None] <= wanted_ms)
    return np.where(
        reached & (wanted_ms <= latencies_ms[np.maximum(last, 0), draws]), found, np.nan
    )


Cell = str | float | int | None

_SHOWN = ("line", "point", "BLEU", "BLEU low", "BLEU high", "core-s / h", "length ratio")
_MISSING = "-"


def point_rows(lines: Sequence[CurveLine], bootstrap: Bootstrap) -> list[dict[str, Cell]]:
    """Return a row for each point: its scores on every clock, and BLEU's confidence band."""
    return [_describe(name, point, bootstrap) for name, points in lines for point in points]


def latency_rows(
    lines: Sequence[CurveLine],
    latencies_ms: Sequence[float],
    metric: str,
    clocks: Sequence[Clock],
    bootstrap: Bootstrap,
) -> Iterator[dict[str, Cell]]:
    """Yield a row for each line at each latency: BLEU, its band, and the gap to the first line.

    ``p`` is the two-sided share of resampled test sets that contradict the gap's sign.
    """
    for clock, latency_ms in product(clocks, latencies_ms):
        first_name, first_points = lines[0]
        first = quality_at(first_points, latency_ms, metric, clock, bootstrap)
        for place, (name, points) in enumerate(lines):
            bleu = quality_at(points, latency_ms, metric, clock, bootstrap)
            gaps = bleu - first
            gap, gap_band = _known(gaps[0]), band(gaps[1:])
            low, high = band(bleu[1:]) or (None, None)
            gap_low, gap_high = gap_band or (None, None)
            other = place > 0 and gap is not None
            yield {
                "latency": f"{metric} {clock}",
                "ms": latency_ms,
                "line": name,
                "BLEU": _known(bleu[0]),
                "low": low,
                "high": high,
                f"gap to {first_name}": gap if other else None,
                "gap low": gap_low if other else None,
                "gap high": gap_high if other else None,
                "p": _contradiction(gaps[1:]) if other and gap_band else None,
            }


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _contradiction(gaps: Floats) -> float:
    known = gaps[~np.isnan(gaps)]
    return min(1.0, 2 * float(min(np.mean(known <= 0), np.mean(known >= 0))))


def as_tsv(rows: Sequence[dict[str, Cell]]) -> str:
    """Return rows as lines of tab-separated cells, numbers unrounded; empty if there are none."""
    if not rows:
        return ""
    header = list(rows[0])
    lines = [header, *([_plain(row[name]) for name in header] for row in rows)]
    return "".join("\t".join(line) + "\n" for line in lines)


def as_text(rows: Sequence[dict[str, Cell]], names: Sequence[str] | None = None) -> str:
    """Return rows as aligned columns, numbers rounded; empty if there are none."""
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
    latencies = [f"{metric} {clock}" for clock in clocks]
    overheads = [f"overhead {clock}" for clock in clocks if clock != "ideal"]
    return [*_SHOWN[:5], *latencies, *overheads, *_SHOWN[5:]]


def _describe(line: str, point: CurvePoint, bootstrap: Bootstrap) -> dict[str, Cell]:
    score = point.report.score
    low, high = band(point.quality(bootstrap)[1:]) or (None, None)
    right = point.quality(bootstrap, "% right")
    right_low, right_high = band(right[1:]) or (None, None)
    row: dict[str, Cell] = {
        "line": line,
        "point": point.name,
        "instances": score.instance_count,
        "silent": score.silent_count,
        "BLEU": point.bleu,
        "BLEU low": low,
        "BLEU high": high,
        "chrF": None if point.report.quality is None else point.report.quality.chrf,
        "% right": _known(right[0]),
        "% right low": right_low,
        "% right high": right_high,
    }
    for metric, clock in product(METRICS, get_args(Clock)):
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


_PANEL_INCHES = (6.0, 4.5)
_MS = 1000


def draw_curves(
    lines: Sequence[CurveLine],
    metric: str,
    clocks: Sequence[Clock],
    bootstrap: Bootstrap,
    path: Path,
    measure: Measure = "BLEU",
) -> list[Clock]:
    """Draw one panel per clock with a line and band per policy; the path's suffix gives the format.

    Points without references or latency are left out.

    Returns:
        The clocks on which there was nothing to draw.
    """
    width, height = _PANEL_INCHES
    # Without it, the ids in an SVG are random; with it, the same curves give the same file.
    with mpl.rc_context({"svg.hashsalt": "earvoice"}):
        figure = Figure(figsize=(width * len(clocks), height), layout="constrained")
        panels: list[Axes] = list(figure.subplots(1, len(clocks), squeeze=False, sharey=True)[0])
        for panel, clock in zip(panels, clocks, strict=True):
            for line in lines:
                _draw_line(panel, line, metric, clock, bootstrap, measure)
            panel.set_xlabel(f"{metric}, s ({clock} clock)")
            panel.grid(visible=True, alpha=0.3)
        panels[0].set_ylabel(f"{measure}, with {CONFIDENCE:.0%} bands")
        filled = [panel for panel in panels if panel.lines]
        if filled:
            filled[0].legend()
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return [clock for panel, clock in zip(panels, clocks, strict=True) if panel not in filled]


def _draw_line(
    panel: Axes, line: CurveLine, metric: str, clock: Clock, bootstrap: Bootstrap, measure: Measure
) -> None:
    name, points = line
    drawn: list[tuple[float, float, float, float]] = []
    for point in points:
        latency_ms = point.latency(metric, clock)
        draws = point.quality(bootstrap, measure)
        borders = band(draws[1:])
        if latency_ms is not None and borders is not None:
            drawn.append((latency_ms / _MS, float(draws[0]), *borders))
    if not drawn:
        return
    latencies, scores, lows, highs = zip(*sorted(drawn), strict=True)
    (curve,) = panel.plot(latencies, scores, marker="o", label=name)
    panel.fill_between(latencies, lows, highs, color=curve.get_color(), alpha=0.15)


# AP has no unit, and the overhead is 0 on the ideal clock.
_LATENCIES = tuple(name for name in METRICS if name not in ("AP", "overhead"))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders",
        metavar="DIR",
        nargs="*",
        type=Path,
        help="folders to search, recursively, for scored logs",
    )
    parser.add_argument(
        "--sweep",
        metavar="POLICY:KEY=V/V,...@KEY=V/V,...",
        action="append",
        default=[],
        help="evaluate every combination of the policy's parameters and the stream's segment, "
        "wait, lag (ms), beam, guards and commit; such as edatt:alpha=0.6/0.4/0.2@segment=800",
    )
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="where the tables and the figure go",
    )
    parser.add_argument(
        "--lines",
        metavar="KEY,...",
        default="",
        help="draw a line for each value of these keys (default: one line per policy)",
    )
    parser.add_argument(
        "--latency", choices=_LATENCIES, default="LAAL", help="metric to draw (%(default)s)"
    )
    parser.add_argument(
        "--clock",
        choices=get_args(ElapsedClock),
        default="simuleval",
        help="clock to draw beside the ideal one (%(default)s)",
    )
    parser.add_argument(
        "--at",
        metavar="MS,...",
        default="1000,1500,2000,3000",
        help="latencies at which BLEU is interpolated (%(default)s)",
    )
    add_source_arguments(parser)
    add_session_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    latencies_ms = _read_latencies(options.at)
    settings = _read_sweeps(options.sweep)
    if options.source_list is not None and not settings:
        raise CommandError("--source is for --sweep: folders have been evaluated already")
    folders = [found for folder in options.folders for found in find_points(folder)]
    if not folders and not settings:
        raise CommandError("nothing to draw: give folders, or --sweep")
    if settings:
        if status := _sweep(options, settings):
            # A point that lacks recordings cannot be compared with the others.
            return status
        folders += [options.output / setting.name for setting in settings]
    scoring = read_scoring(options)
    # A folder that is named twice, or was just written by a sweep, is still one point.
    once = {folder.resolve(): folder for folder in folders}.values()
    points = [read_point(folder, scoring) for folder in once]
    keys = list(filter(None, options.lines.split(",")))
    known = {key for point in points for key in point.choices}
    if unknown := set(keys) - known:
        raise CommandError(
            f"--lines {','.join(sorted(unknown))}: no point has it; "
            f"allowed: {', '.join(sorted(known)) or 'none'}"
        )
    _write(group_points(points, keys), options, latencies_ms)
    return ExitCode.DONE


def _read_latencies(text: str) -> list[float]:
    try:
        latencies_ms = [float(part) for part in text.split(",") if part]
    except ValueError:
        latencies_ms = [math.nan]
    if not all(map(math.isfinite, latencies_ms)):
        raise CommandError(f"--at {text}: must be numbers separated by commas")
    return latencies_ms


def _read_sweeps(texts: Sequence[str]) -> list[ReplaySetting]:
    try:
        settings = [setting for text in texts for setting in parse_settings(text)]
    except ValueError as error:
        raise CommandError(f"--sweep: {error}") from error
    for setting in settings:
        if setting.attention != "one-layer" or not setting.uses_drafts:
            raise CommandError(f"--sweep {setting.name}: attention and drafts are for replays")
    return settings


def _sweep(options: argparse.Namespace, settings: Sequence[ReplaySetting]) -> int:
    sources = read_source_set(options)
    check_session_options(options)

    finished: list[tuple[Path, Sequence[TranslationError]]] = []

    async def run(_: Interruption) -> None:
        async with choose_server(options) as address, open_client(address, options) as client:
            base = await choose_session(client, options)
            for setting in settings:
                folder, choices = options.output / setting.name, setting.applied_to(base)
                finished.append((folder, await translate_set(client, sources, choices, folder)))

    status: int = ExitCode.DONE
    try:
        run_async(run)
    finally:
        # Also where a later setting was refused.
        for folder, failures in finished:
            report = score_run(folder, sources, failures)
            status = tell_failures(report, failures, sources) or status
    return status


def _write(
    lines: Sequence[CurveLine], options: argparse.Namespace, latencies_ms: Sequence[float]
) -> None:
    folder, metric = options.output, options.latency
    clocks: tuple[Clock, ...] = ("ideal", options.clock)
    folder.mkdir(parents=True, exist_ok=True)
    bootstrap = Bootstrap(len(lines[0][1][0].instances))
    rows = point_rows(lines, bootstrap)
    (folder / "curves.tsv").write_text(as_tsv(rows), encoding="utf8")
    print(as_text(rows, shown_columns(metric, clocks)))  # noqa: T201 - the result
    at = list(latency_rows(lines, latencies_ms, metric, clocks, bootstrap))
    at_path = folder / "quality_at_latency.tsv"
    # One of an earlier command would be taken for one of these curves.
    at_path.unlink(missing_ok=True)
    if at:
        at_path.write_text(as_tsv(at), encoding="utf8")
        print(f"\n{as_text([row for row in at if row['BLEU'] is not None] or at)}")  # noqa: T201 - the result
    for ending in ("svg", "png"):
        path = folder / f"curves.{ending}"
        empty = draw_curves(lines, metric, clocks, bootstrap, path)
    for clock in empty:
        print(  # noqa: T201 - for people
            f"earvoice: the figure of the clock {clock} is empty: no point has both {metric} on it "
            "and BLEU with its band",
            file=sys.stderr,
        )


COMMAND = Command(_add_arguments, _run, "draw quality over latency, from sweeps and from logs")
