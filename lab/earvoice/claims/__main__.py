"""Command line of the claims: ``python -m earvoice.claims run|report``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

_PARTS = ("attention", "text", "attention-study", "text-study", "shares", "beams", "schedules")
_TRAINING_PART = "training"


def main() -> None:
    """Run the plan on a checkpoint, or write the page about several."""
    parser = argparse.ArgumentParser(prog="python -m earvoice.claims", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    run = steps.add_parser("run", help="translate a test set in every setting of the plan")
    run.add_argument("--model", type=Path, required=True, help="folder of the checkpoint")
    run.add_argument("--label", required=True, help="the checkpoint's name in tables")
    run.add_argument(
        "--testset", type=Path, required=True, help="wavs.txt, words.jsonl, refs.LANGUAGE.txt"
    )
    run.add_argument("--to", default="de", help="target language (%(default)s)")
    run.add_argument("--output", type=Path, required=True, help="run again to go on")
    run.add_argument(
        "--parts",
        nargs="+",
        choices=(*_PARTS, _TRAINING_PART),
        default=_PARTS,
        help="(%(default)s); training, alone: what is asked of checkpoints that are compared",
    )
    run.add_argument(
        "--grids",
        default="",
        help="record these segments only, in ms; leaves settings out: 800,1000",
    )
    run.add_argument("--note", default="", help="what a reader should know of the checkpoint")
    run.add_argument("--limit", type=int, help="the first so many inputs only")
    report = steps.add_parser("report", help="write the page, its figure and its table")
    _add_report(report)
    options = parser.parse_args()
    _STEPS[options.step](options)


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument("results", nargs="+", type=Path, help="folders of runs")
    report.add_argument(
        "--snapshots",
        nargs="+",
        type=Path,
        default=[],
        help="claim 13: folders of runs of one training's milestones, the youngest first",
    )
    report.add_argument(
        "--distilled",
        nargs=2,
        type=Path,
        default=[],
        metavar=("WITHOUT", "WITH"),
        help="claim 14: a training without a teacher's translations, and one with them",
    )
    report.add_argument(
        "--wait-k",
        nargs="+",
        type=Path,
        default=[],
        help="claim 15: an offline training, then those with wait-k masks",
    )
    report.add_argument(
        "--truncated",
        nargs=2,
        type=Path,
        default=[],
        metavar=("WITHOUT", "WITH"),
        help="no paper's claim: a training on whole inputs, and one on truncated ones too",
    )
    report.add_argument("--page", type=Path, default=Path("docs/results.md"))


def _run(options: argparse.Namespace) -> None:
    # OpenMP reads it when torch is imported; threads that spin slow the whole machine down.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from earvoice.claims.run import PlanRun, run_plan  # noqa: PLC0415
    from earvoice.evaluation.run.source_list import read_lines, read_sources  # noqa: PLC0415

    references = read_lines(options.testset / f"refs.{options.to}.txt")
    sources = read_sources(options.testset / "wavs.txt", references)
    plan_run = PlanRun(
        options.model,
        options.label,
        options.to,
        options.output,
        options.parts,
        tuple(int(grid) for grid in filter(None, options.grids.split(","))),
        options.note,
    )
    words = read_lines(options.testset / "words.jsonl")
    run_plan(plan_run, sources[: options.limit], words[: options.limit])


def _report(options: argparse.Namespace) -> None:
    from earvoice.claims.report import write_report  # noqa: PLC0415
    from earvoice.claims.training_study import TrainingFolders  # noqa: PLC0415

    folders = TrainingFolders(
        options.snapshots, options.distilled, options.wait_k, options.truncated
    )
    write_report(options.results, folders, options.page)


_STEPS = {"run": _run, "report": _report}

if __name__ == "__main__":
    main()
