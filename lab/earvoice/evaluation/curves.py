"""``earvoice curves``: quality over latency, from sweeps and from logs that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from earvoice.cli.command import Command, CommandError
from earvoice.cli.connection import open_client
from earvoice.cli.event_loop import run_async
from earvoice.cli.exit_code import ExitCode
from earvoice.cli.server_choice import choose_server
from earvoice.evaluation.clock import Clock, ElapsedClock
from earvoice.evaluation.corpus_score import metric_names
from earvoice.evaluation.curve.line import CurveLine, group_points
from earvoice.evaluation.curve.plot import draw_curves
from earvoice.evaluation.curve.point import find_points, read_point
from earvoice.evaluation.curve.resampling import Resampler
from earvoice.evaluation.curve.table import (
    as_text,
    as_tsv,
    latency_rows,
    point_rows,
    shown_columns,
)
from earvoice.evaluation.evaluate import (
    add_session_arguments,
    check_session_options,
    choose_session,
    tell_failures,
)
from earvoice.evaluation.long_form import ResegmenterError
from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.replay.setting import ReplaySetting, parse_settings
from earvoice.evaluation.run.evaluation import evaluate
from earvoice.evaluation.run.source_set import (
    add_source_arguments,
    read_scoring,
    read_source_set,
)

if TYPE_CHECKING:
    import argparse

    from earvoice.cli.event_loop import Interruption


# AP has no unit, and on the ideal clock nothing computes.
_LATENCIES = tuple(name for name in metric_names() if name not in ("AP", "overhead"))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders", metavar="DIR", nargs="*", type=Path, help="folders with scored logs in or below"
    )
    parser.add_argument(
        "--sweep",
        metavar="POLICY:KEY=V/V,...@KEY=V/V,...",
        action="append",
        default=[],
        help="evaluate every combination: parameters of the policy, and segment, wait, lag (ms), "
        "beam, guards, commit of the stream; edatt:alpha=0.6/0.4/0.2@segment=800",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="where tables and picture go"
    )
    parser.add_argument(
        "--lines",
        metavar="KEY,...",
        default="",
        help="choices that make a line of their own (default: one line a policy)",
    )
    parser.add_argument(
        "--latency", choices=_LATENCIES, default="LAAL", help="drawn metric (%(default)s)"
    )
    parser.add_argument(
        "--clock",
        choices=get_args(ElapsedClock),
        default="simuleval",
        help="drawn beside the ideal clock (%(default)s)",
    )
    parser.add_argument(
        "--at",
        metavar="MS,...",
        default="1000,1500,2000,3000",
        help="latencies at which BLEU is interpolated (%(default)s)",
    )
    add_source_arguments(parser)
    add_session_arguments(parser)


@dataclass(frozen=True)
class _Drawing:
    """What is drawn: the metric, the clocks, the lines' keys, and where BLEU is asked for."""

    metric: str
    clocks: tuple[Clock, ...]
    keys: tuple[str, ...]
    latencies_ms: tuple[float, ...]


def _run(options: argparse.Namespace) -> int:
    try:
        return _draw(options)
    except LogError as error:
        raise CommandError(str(error), ExitCode.INPUT) from error
    except ResegmenterError as error:
        raise CommandError(str(error)) from error


def _draw(options: argparse.Namespace) -> int:
    drawing = _read_drawing(options)
    settings = _read_sweeps(options.sweep)
    folders = [found for folder in options.folders for found in find_points(folder)]
    if not folders and not settings:
        raise CommandError("nothing to draw: give folders, or --sweep")
    if settings:
        if status := _sweep(options, settings):
            # A point without some of the recordings lies on no line with the others.
            return status
        folders += [options.output / setting.name for setting in settings]
    scoring = read_scoring(options)
    # A folder may be named twice, or be what a sweep has just written: it is one point.
    once = {folder.resolve(): folder for folder in folders}.values()
    points = [read_point(folder, scoring) for folder in once]
    _write(group_points(points, drawing.keys), drawing, options.output)
    return ExitCode.DONE


def _read_drawing(options: argparse.Namespace) -> _Drawing:
    try:
        latencies_ms = tuple(float(part) for part in options.at.split(",") if part)
    except ValueError as error:
        raise CommandError(f"--at {options.at}: must be numbers divided by commas") from error
    return _Drawing(
        options.latency,
        ("ideal", options.clock),
        tuple(filter(None, options.lines.split(","))),
        latencies_ms,
    )


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

    async def run(_: Interruption) -> int:
        status: int = ExitCode.DONE
        async with choose_server(options) as address, open_client(address, options) as client:
            base = await choose_session(client, options)
            for setting in settings:
                choices = setting.applied_to(base)
                result = await evaluate(client, sources, choices, options.output / setting.name)
                status = tell_failures(result, sources) or status
        return status

    return run_async(run)


def _write(lines: Sequence[CurveLine], drawing: _Drawing, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    resampler = Resampler(len(lines[0].points[0].instances))
    rows = point_rows(lines, resampler)
    (folder / "curves.tsv").write_text(as_tsv(rows), encoding="utf8")
    print(as_text(rows, shown_columns(drawing.metric, drawing.clocks)))  # noqa: T201 - the result
    at = list(latency_rows(lines, drawing.latencies_ms, drawing.metric, drawing.clocks, resampler))
    if at:
        (folder / "quality_at_latency.tsv").write_text(as_tsv(at), encoding="utf8")
        print(f"\n{as_text([row for row in at if row['BLEU'] is not None] or at)}")  # noqa: T201 - the result
    for ending in ("svg", "png"):
        path = folder / f"curves.{ending}"
        draw_curves(lines, drawing.metric, drawing.clocks, resampler, path)


COMMAND = Command(_add_arguments, _run)
