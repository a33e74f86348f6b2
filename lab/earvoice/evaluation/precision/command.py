"""``earvoice precision``: may a model compute in bf16 or int8? Its config keeps the answer."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from earvoice.cli.command import Command, CommandError
from earvoice.cli.exit_code import ExitCode
from earvoice.client.errors import AudioSourceError
from earvoice.evaluation.model_trial_arguments import add_model_trial_arguments
from earvoice.evaluation.quality import QualityError
from earvoice.evaluation.run.source_list import read_lines, read_sources
from earvoice.runtime.errors import EarvoiceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earvoice.evaluation.precision.comparison import PrecisionResult

_FORMATS = ("bf16", "int8")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_trial_arguments(parser)
    parser.add_argument(
        "--precisions", nargs="+", choices=_FORMATS, default=_FORMATS, help="to try (%(default)s)"
    )
    parser.add_argument("--limit", metavar="N", type=int, help="the first N recordings alone")
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be written, write nothing"
    )


def _run(options: argparse.Namespace) -> int:
    if options.limit is not None and options.limit < 1:
        raise CommandError(f"--limit {options.limit} is not allowed; allowed: 1 or more")
    sources = read_sources(options.source, read_lines(options.target))[: options.limit]
    # OpenMP reads it when torch is imported; threads that spin slow the whole machine down.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from earvoice.evaluation.precision.comparison import PrecisionComparison  # noqa: PLC0415
    from earvoice.models.checkpoint import add_precision_trials, load_config  # noqa: PLC0415
    from earvoice.models.errors import ModelError  # noqa: PLC0415

    try:
        languages = [language.code for language in load_config(options.model).target_languages]
        language = options.to or languages[0]
        if language not in languages:
            raise CommandError(f"--to {language} is not written; allowed: {', '.join(languages)}")
        comparison = PrecisionComparison(options.model, language, sources)
        results = comparison.compare(options.precisions)
        if not options.dry_run:
            trials = tuple(result.trial for result in results[1:])
            add_precision_trials(options.model, trials)
    except (ModelError, QualityError) as error:
        raise CommandError(str(error), ExitCode.INPUT) from error
    except AudioSourceError as error:
        raise CommandError(error.message, ExitCode.INPUT) from error
    except EarvoiceError as error:
        raise CommandError(str(error)) from error
    sys.stdout.write(_table(results))
    return ExitCode.DONE


def _table(results: Sequence[PrecisionResult]) -> str:
    lines = [f"{'':8}{'inputs':>8}{'equal %':>10}{'BLEU':>9}{'ΔBLEU':>9}  passed"]
    for result in results:
        trial = result.trial
        lines.append(
            f"{trial.precision:8}{trial.input_count:8}{100 * trial.equal_share:10.2f}"
            f"{result.bleu:9.2f}{trial.bleu_difference:9.2f}  {'yes' if trial.passed else 'no'}"
        )
    return "\n".join(lines) + "\n"


COMMAND = Command(_add_arguments, _run)
