"""``earvoice score``: latency and quality of a log of translations."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from earvoice.cli.command import Command, CommandError
from earvoice.cli.exit_code import ExitCode
from earvoice.evaluation.clock import ElapsedClock
from earvoice.evaluation.long_form import ResegmenterError
from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.scoring import ScoringOptions, add_long_form_arguments, score_log
from earvoice.evaluation.text_unit import Unit


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        metavar="PATH",
        type=Path,
        help="a log, or the folder of one: SimulEval 1.0 or 1.1, OmniSTEval, simulstream, or "
        "earvoice translate --format jsonl",
    )
    parser.add_argument(
        "--unit", choices=get_args(Unit), help="what to count (char for zh and ja, else word)"
    )
    parser.add_argument(
        "--language", metavar="TAG", help="target language, BCP-47: unit and BLEU's tokenizer"
    )
    parser.add_argument(
        "--references",
        metavar="FILE",
        type=Path,
        help="a line each, for logs without references and for --segmentation",
    )
    parser.add_argument(
        "--compatible-splitting",
        action="store_true",
        help="count references as SimulEval does: at every single blank; blanks as characters",
    )
    parser.add_argument(
        "--elapsed-clock",
        choices=get_args(ElapsedClock),
        help="clock of the log's computation-aware times, where the log does not say it",
    )
    add_long_form_arguments(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(%(default)s)")


def _run(options: argparse.Namespace) -> int:
    if options.segmentation is not None and options.references is None:
        raise CommandError("--segmentation needs --references: a line for each sentence")
    choices = ScoringOptions(
        unit=options.unit,
        language=options.language,
        references=options.references,
        segmentation=options.segmentation,
        resegmenter=options.resegmenter,
        words=options.words,
        compatible=options.compatible_splitting,
        elapsed_clock=options.elapsed_clock,
    )
    try:
        report = score_log(options.path, choices).report
    except LogError as error:
        raise CommandError(str(error), ExitCode.INPUT) from error
    except ResegmenterError as error:
        raise CommandError(str(error)) from error
    print(report.as_json() if options.format == "json" else report.as_text())  # noqa: T201 - the result
    return ExitCode.DONE


COMMAND = Command(_add_arguments, _run)
