"""``earvoice record``: what the encoder hears in a test set, kept for ``earvoice replay``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from earvoice.cli.command import Command, CommandError
from earvoice.cli.exit_code import ExitCode
from earvoice.evaluation.recording import Grid, Recording, RecordingError
from earvoice.evaluation.run.run_progress import RunProgress
from earvoice.evaluation.run.source_list import read_lines, read_sources
from earvoice.runtime.model_settings import shipped_model_path

DEFAULT_GRIDS = "250,280,800"
"""LA-n, Hold-n and SP-n at 250, 500, 1000 and 2000 ms; wait-k; EDAtt and AlignAtt."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source", metavar="FILE", type=Path, required=True, help="paths of recordings, one a line"
    )
    parser.add_argument(
        "--target", metavar="FILE", type=Path, help="their translations, one a line"
    )
    parser.add_argument(
        "--model",
        metavar="DIR",
        type=Path,
        default=shipped_model_path(),
        help="checkpoint (the shipped model)",
    )
    parser.add_argument(
        "--segment",
        metavar="MS[+WAIT],...",
        default=DEFAULT_GRIDS,
        help="segments that replays may ask for, with an initial wait or without; multiples of "
        "one are in it too (%(default)s)",
    )
    parser.add_argument(
        "--output", metavar="DIR", type=Path, required=True, help="a new recording, or one to end"
    )


def _run(options: argparse.Namespace) -> int:
    # OpenMP reads it when torch is imported; threads that spin slow the whole machine down.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from earvoice.evaluation.recorder import RecordError, record_inputs  # noqa: PLC0415

    sources = read_sources(options.source, read_lines(options.target) if options.target else None)
    try:
        grids = tuple(Grid.parse(text) for text in options.segment.split(","))
    except ValueError as error:
        raise CommandError(f"--segment: {error}") from error
    recording = Recording(options.output)
    try:
        finished = len(recording.inputs())
        progress = RunProgress.on_stderr("record", len(sources), finished)
        record_inputs(options.model, sources, grids, recording, progress)
    except (RecordingError, RecordError) as error:
        raise CommandError(str(error), ExitCode.INPUT) from error
    return ExitCode.DONE


COMMAND = Command(_add_arguments, _run)
