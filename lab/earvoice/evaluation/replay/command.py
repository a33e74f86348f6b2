"""``earvoice replay``: any policies on a recording, with the decoder alone."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from earvoice.cli.command import Command, CommandError
from earvoice.cli.exit_code import ExitCode
from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.recording import RecordingError
from earvoice.evaluation.replay.setting import ReplaySetting, parse_settings
from earvoice.evaluation.run.source_list import read_lines
from earvoice.policy.wire.decoding import MAX_SEGMENT_MS, MIN_SEGMENT_MS
from earvoice.runtime.errors import EarvoiceError
from earvoice.runtime.model_settings import shipped_model_path

if TYPE_CHECKING:
    from earvoice.evaluation.replay.hypothesis_source import SourceTally


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recording_arguments(parser)
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
        "--output",
        metavar="DIR",
        type=Path,
        required=True,
        help="a folder in it for each setting; run again to go on",
    )


def add_recording_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the recording, its model, and how much of it is replayed."""
    parser.add_argument(
        "recording",
        metavar="RECORDING",
        type=Path,
        help="folder of earvoice record, or of earvoice evaluate --record",
    )
    parser.add_argument(
        "--model", metavar="DIR", type=Path, default=shipped_model_path(), help="(the shipped one)"
    )
    parser.add_argument("--to", metavar="TAG", help="target language (the model's first)")
    parser.add_argument("--limit", metavar="N", type=int, help="the first so many inputs only")


def check_segment_ms(segment_ms: int) -> None:
    """Refuse a segment that no session may ask for.

    Raises:
        CommandError: it is shorter or longer than the services allow.
    """
    if not MIN_SEGMENT_MS <= segment_ms <= MAX_SEGMENT_MS:
        raise CommandError(
            f"--segment = {segment_ms} is not allowed; allowed: {MIN_SEGMENT_MS} to "
            f"{MAX_SEGMENT_MS}"
        )


def _run(options: argparse.Namespace) -> int:
    settings = read_settings([*options.policy, *_lines(options.settings)])
    # OpenMP reads it when torch is imported; threads that spin slow the whole machine down.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        tally = _replay(options, settings)
    except (RecordingError, LogError) as error:
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


def _lines(path: Path | None) -> list[str]:
    return [line for line in read_lines(path) if line.strip()] if path else []


def _replay(options: argparse.Namespace, settings: list[ReplaySetting]) -> SourceTally:
    from earvoice.evaluation.replay.sweep import ReplaySweep  # noqa: PLC0415

    sweep = ReplaySweep(options.recording, options.model, options.to, options.limit)
    return sweep.replay(settings, options.output)


COMMAND = Command(_add_arguments, _run)
