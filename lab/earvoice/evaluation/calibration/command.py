"""``earvoice calibrate``: a model's own policy parameters, chosen on a development set."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path

from earvoice.cli.command import Command, CommandError
from earvoice.cli.exit_code import ExitCode
from earvoice.evaluation.model_trial_arguments import add_model_trial_arguments
from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.recording import Grid, Recording, RecordingError
from earvoice.evaluation.replay.command import check_segment_ms
from earvoice.evaluation.run.run_progress import RunProgress
from earvoice.evaluation.run.source_list import read_lines, read_sources
from earvoice.runtime.errors import EarvoiceError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_trial_arguments(parser)
    parser.add_argument(
        "--segment", metavar="MS", type=int, default=800, help="of the streams (%(default)s)"
    )
    parser.add_argument(
        "--lag-ms",
        type=float,
        default=2000,
        help="mean LAAL that the default alpha and f must keep (%(default)s)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be written, write nothing"
    )
    parser.add_argument(
        "--output", metavar="DIR", type=Path, required=True, help="of recording and replays"
    )


def _run(options: argparse.Namespace) -> int:
    sources = read_sources(options.source, read_lines(options.target))
    check_segment_ms(options.segment)
    # OpenMP reads it when torch is imported; threads that spin slow the whole machine down.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from earvoice.evaluation.calibration.calibrator import Calibrator  # noqa: PLC0415
    from earvoice.evaluation.recorder import RecordError, record_inputs  # noqa: PLC0415
    from earvoice.evaluation.replay.sweep import ReplaySweep  # noqa: PLC0415
    from earvoice.models.checkpoint import load_config, write_policy_defaults  # noqa: PLC0415
    from earvoice.models.errors import ModelError  # noqa: PLC0415

    try:
        before = load_config(options.model).policy_defaults
        recording = Recording(options.output / "recording")
        done = len(recording.inputs())
        progress = RunProgress.on_stderr("record", len(sources), done)
        record_inputs(options.model, sources, [Grid(options.segment)], recording, progress)
        sweep = ReplaySweep(recording.folder, options.model, options.to, None)
        calibrator = Calibrator(sweep, options.output / "replays", options.segment, options.lag_ms)
        chosen = calibrator.calibrate(before)
        if not options.dry_run:
            write_policy_defaults(options.model, chosen)
    except (RecordingError, RecordError, ModelError, LogError) as error:
        raise CommandError(str(error), ExitCode.INPUT) from error
    except EarvoiceError as error:
        raise CommandError(str(error)) from error
    for name, value in asdict(chosen).items():
        sys.stdout.write(f"{name} = {value} (was {getattr(before, name)})\n")
    return ExitCode.DONE


COMMAND = Command(_add_arguments, _run)
