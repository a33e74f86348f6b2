"""``earvoice study``: where a model's attention looks, and what a policy could still gain."""

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
from earvoice.evaluation.replay.command import (
    add_recording_arguments,
    check_segment_ms,
    read_settings,
)
from earvoice.evaluation.study.attention_study import ALPHAS, PARTS, study_settings
from earvoice.runtime.errors import EarvoiceError

if TYPE_CHECKING:
    from earvoice.evaluation.replay.setting import ReplaySetting
    from earvoice.evaluation.replay.sweep import ReplaySweep


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recording_arguments(parser)
    parser.add_argument(
        "--parts",
        metavar="PART,...",
        default=",".join(PARTS),
        help="what is varied; none with '' (%(default)s)",
    )
    parser.add_argument(
        "--alphas",
        metavar="A,...",
        default=",".join(map(str, ALPHAS)),
        help="EDAtt's thresholds, all tried with each value (%(default)s)",
    )
    parser.add_argument(
        "--policy",
        metavar="SETTING",
        action="append",
        default=[],
        help="of `earvoice replay`; its headroom is in the table, too; may be given often",
    )
    parser.add_argument(
        "--segment",
        metavar="MS",
        type=int,
        default=800,
        help="of the attention policies, the oracle and the pictures (%(default)s)",
    )
    parser.add_argument(
        "--pictures", metavar="N", type=int, default=1, help="of the first N inputs (%(default)s)"
    )
    parser.add_argument(
        "--output", metavar="DIR", type=Path, required=True, help="run again to go on"
    )


def _run(options: argparse.Namespace) -> int:
    check_segment_ms(options.segment)
    alphas = _read_alphas(options.alphas)
    parts = [part for part in options.parts.split(",") if part]
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise CommandError(f"--parts {unknown[0]} is not allowed; allowed: {', '.join(PARTS)}")
    more = read_settings(options.policy) if options.policy else []
    # OpenMP reads it when torch is imported; threads that spin slow the whole machine down.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from earvoice.evaluation.replay.sweep import ReplaySweep  # noqa: PLC0415

    try:
        sweep = ReplaySweep(options.recording, options.model, options.to, options.limit)
        _study(sweep, options, parts, alphas, more)
    except (RecordingError, LogError) as error:
        raise CommandError(str(error), ExitCode.INPUT) from error
    except EarvoiceError as error:
        raise CommandError(str(error)) from error
    return ExitCode.DONE


def _study(
    sweep: ReplaySweep,
    options: argparse.Namespace,
    parts: list[str],
    alphas: list[float],
    more: list[ReplaySetting],
) -> None:
    from earvoice.evaluation.curve.table import as_text, as_tsv  # noqa: PLC0415
    from earvoice.evaluation.study.hypothesis_study import study_hypotheses  # noqa: PLC0415
    from earvoice.evaluation.study.study_table import study_rows  # noqa: PLC0415

    served = sweep.model.served
    heads = served.head_count
    every = study_settings(served.facts.decoder_layers, heads, options.segment, alphas)
    chosen = [row for row in every if row.part in parts]
    settings = list(dict.fromkeys([*(row.setting for row in chosen), *more]))
    output: Path = options.output
    shares = study_hypotheses(sweep, options.segment, options.pictures, output)
    (output / "attention_share.tsv").write_text(as_tsv(shares), encoding="utf8")
    if settings:
        sweep.replay(settings, output)
    rows = study_rows(chosen, more, output, options.segment)
    (output / "study.tsv").write_text(as_tsv(rows), encoding="utf8")
    sys.stdout.write(f"{as_text(shares)}\n\n{as_text(rows)}\n")


def _read_alphas(text: str) -> list[float]:
    try:
        alphas = [float(part) for part in text.split(",") if part]
    except ValueError as error:
        raise CommandError(f"--alphas {text}: must be numbers divided by commas") from error
    if any(not 0 <= alpha <= 1 for alpha in alphas):
        raise CommandError(f"--alphas {text}: must be 0 to 1")
    return alphas


COMMAND = Command(_add_arguments, _run)
