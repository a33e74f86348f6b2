"""``earvoice score``: latency and quality of a log of translations."""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path
from typing import get_args

from earvoice.cli.command import Command, CommandError
from earvoice.cli.exit_code import ExitCode
from earvoice.evaluation.clock import ElapsedClock
from earvoice.evaluation.corpus_score import known_clocks, score_corpus
from earvoice.evaluation.quality import Quality, QualityError, score_quality
from earvoice.evaluation.readers.detection import find_log, read_log
from earvoice.evaluation.readers.log import Log, LogError, ReadingOptions
from earvoice.evaluation.readers.record import read_records
from earvoice.evaluation.readers.translation import find_language
from earvoice.evaluation.report import Report
from earvoice.evaluation.text_unit import Unit, default_unit


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
        "--references", metavar="FILE", type=Path, help="a line each, for logs without references"
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
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(%(default)s)")


def _run(options: argparse.Namespace) -> int:
    try:
        report = _report(options)
    except LogError as error:
        raise CommandError(str(error), ExitCode.INPUT) from error
    print(report.as_json() if options.format == "json" else report.as_text())  # noqa: T201 - the result
    return ExitCode.DONE


def _report(options: argparse.Namespace) -> Report:
    path = find_log(options.path)
    records = read_records(path)
    language = options.language or find_language(records)
    reading = ReadingOptions(
        unit=options.unit or default_unit(language),
        compatible=options.compatible_splitting,
        references=_read_references(options.references),
        elapsed_clock=options.elapsed_clock,
    )
    log = read_log(path, records, reading)
    quality, quality_notes = _score_quality(log, language)
    return Report(
        version=version("earvoice"),
        path=str(path),
        format_name=log.format_name,
        unit=reading.unit,
        reference_rule=(
            "counted as SimulEval does" if reading.compatible else "blanks never count"
        ),
        word_rule=log.word_rule,
        score=score_corpus(log.instances, simuleval_1_0=log.ends_with_eos),
        quality=quality,
        notes=(*log.notes, *_clock_notes(log), *quality_notes),
    )


def _read_references(path: Path | None) -> tuple[str, ...] | None:
    if path is None:
        return None
    try:
        lines = path.read_text(encoding="utf8").split("\n")
    except UnicodeDecodeError as error:
        raise LogError(str(path), f"is no UTF-8 text: {error}") from error
    # The last line's end begins no line of its own.
    return tuple(lines[:-1] if lines[-1] == "" else lines)


def _score_quality(log: Log, language: str) -> tuple[Quality | None, tuple[str, ...]]:
    pairs = [
        (instance.prediction, instance.reference)
        for instance in log.instances
        if instance.reference is not None
    ]
    missing = len(log.instances) - len(pairs)
    notes: list[str] = []
    if missing:
        notes.append(
            f"{missing} of {len(log.instances)} instances have no reference: their hypothesis' "
            "length stands in for it, and BLEU and chrF leave them out"
        )
    if not pairs:
        return None, tuple(notes)
    try:
        hypotheses, references = zip(*pairs, strict=True)
        return score_quality(hypotheses, references, language), tuple(notes)
    except QualityError as error:
        return None, (*notes, f"BLEU and chrF are left out: {error}")


def _clock_notes(log: Log) -> tuple[str, ...]:
    spoken = [instance for instance in log.instances if instance.unit_count]
    some = {clock for instance in spoken for clock in instance.elapsed_ms}
    partial = sorted(some - set(known_clocks(spoken)))
    return tuple(
        f"clock {clock} is left out: not every instance with output has it" for clock in partial
    )


COMMAND = Command(_add_arguments, _run)
