"""``earvoice replay``: any policies on a recording, with the decoder alone."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from earvoice.cli.command import Command, CommandError
from earvoice.cli.exit_code import ExitCode
from earvoice.evaluation.recording import RECORDING_FOLDER, Recording, RecordingError
from earvoice.evaluation.replay.setting import ReplaySetting, parse_settings
from earvoice.evaluation.run.run_progress import RunProgress
from earvoice.evaluation.run.source_list import read_lines
from earvoice.runtime.errors import EarvoiceError
from earvoice.runtime.model_settings import shipped_model_path

if TYPE_CHECKING:
    from earvoice.evaluation.replay.hypothesis_source import SourceTally


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recording",
        metavar="RECORDING",
        type=Path,
        help="folder of earvoice record, or of earvoice evaluate --record",
    )
    parser.add_argument(
        "--policy",
        metavar="SETTING",
        action="append",
        default=[],
        help="POLICY:PARAMETER=VALUE,...@segment=MS,wait=MS,beam=N,attention=VIEW,drafts=false,"
        "guards=false,commit=UNIT; values divided by / are each a setting; may be given often",
    )
    parser.add_argument("--settings", metavar="FILE", type=Path, help="more of them, one a line")
    parser.add_argument(
        "--model", metavar="DIR", type=Path, default=shipped_model_path(), help="(the shipped one)"
    )
    parser.add_argument("--to", metavar="TAG", help="target language (the model's first)")
    parser.add_argument("--limit", metavar="N", type=int, help="the first so many inputs only")
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        required=True,
        help="a folder in it for each setting; run again to go on",
    )


def _run(options: argparse.Namespace) -> int:
    settings = read_settings([*options.policy, *_lines(options.settings)])
    # OpenMP reads it when torch is imported; threads that spin slow the whole machine down.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        tally = _replay(options, settings)
    except RecordingError as error:
        raise CommandError(str(error), ExitCode.INPUT) from error
    except EarvoiceError as error:
        raise CommandError(str(error)) from error
    sys.stderr.write(
        f"{len(settings)} settings; hypotheses: {tally.asked} asked for, {tally.searched} "
        f"searched; beams: {tally.beams_asked} asked for, {tally.beams_searched} searched\n"
    )
    return ExitCode.DONE


def read_settings(texts: list[str]) -> list[ReplaySetting]:
    """Return the settings, each once.

    Raises:
        CommandError: there are none, or one cannot be read.
    """
    settings: list[ReplaySetting] = []
    for text in texts:
        try:
            settings += parse_settings(text)
        except ValueError as error:
            raise CommandError(f"setting {text!r}: {error}") from error
    if not settings:
        raise CommandError("no setting was given: --policy or --settings")
    return list(dict.fromkeys(settings))


def _recording(folder: Path) -> Recording:
    """Return the recording in a folder: of `earvoice record`, or of a run that was recorded."""
    beside_run = Recording(folder / RECORDING_FOLDER)
    return beside_run if beside_run.folder.is_dir() else Recording(folder)


def _lines(path: Path | None) -> list[str]:
    return [line for line in read_lines(path) if line.strip()] if path else []


def _replay(options: argparse.Namespace, settings: list[ReplaySetting]) -> SourceTally:
    from earvoice.evaluation.replay.replay_model import load_replay_model  # noqa: PLC0415
    from earvoice.evaluation.replay.replay_run import Replay, ReplayRun  # noqa: PLC0415

    recording = _recording(options.recording)
    model = load_replay_model(options.model, recording)
    languages = model.served.facts.target_languages
    language = options.to or languages[0]
    if language not in languages:
        raise CommandError(f"--to {language} is not served; served: {', '.join(languages)}")
    inputs = recording.inputs()[: options.limit]
    if not inputs:
        raise CommandError(f"{options.recording} has no inputs", ExitCode.INPUT)
    run = ReplayRun(recording, model, language)
    for setting in settings:
        run.options(setting, inputs[0].sample_rate_hertz)
    replays = [
        Replay(setting, run.open_folder(options.output / setting.name, setting, options.limit))
        for setting in settings
    ]
    progress = RunProgress(sys.stderr, "replay", len(inputs), 0, on_terminal=sys.stderr.isatty())
    asyncio.run(run.run(inputs, replays, progress))
    return run.tally


COMMAND = Command(_add_arguments, _run)
