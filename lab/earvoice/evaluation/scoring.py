"""From a log to a report: reading, cutting, counting, quality."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import get_args

from earvoice.evaluation.clock import ElapsedClock
from earvoice.evaluation.corpus_score import known_clocks, score_corpus
from earvoice.evaluation.instance import Instance
from earvoice.evaluation.long_form import Resegmenter, resegment
from earvoice.evaluation.quality import Quality, QualityError, score_quality
from earvoice.evaluation.readers.detection import find_log, read_log
from earvoice.evaluation.readers.log import Log, LogError, ReadingOptions
from earvoice.evaluation.readers.record import read_records
from earvoice.evaluation.readers.translation import find_language
from earvoice.evaluation.reference_sentence import read_segmentation
from earvoice.evaluation.report import Report
from earvoice.evaluation.spoken_word import place_spoken_words, read_spoken_words
from earvoice.evaluation.text_unit import Unit, default_unit


@dataclass(frozen=True)
class ScoringOptions:
    """How to score a log; what is None is found out or left out.

    Attributes:
        unit: what to count.
        language: of the target, BCP-47.
        references: a file with a line for each instance, or for each sentence of ``segmentation``.
        segmentation: where the reference sentences are in the recordings (YAML).
        resegmenter: who cuts the output to the sentences.
        words: when each word of each recording was spoken (JSON lines).
        compatible: count references as SimulEval does.
        elapsed_clock: clock of the log's computation-aware times, where the log does not say it.
    """

    unit: Unit | None = None
    language: str | None = None
    references: Path | None = None
    segmentation: Path | None = None
    resegmenter: Resegmenter = "omnisteval"
    words: Path | None = None
    compatible: bool = False
    elapsed_clock: ElapsedClock | None = None


def add_long_form_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what cuts a long output to sentences, and where words were spoken."""
    parser.add_argument(
        "--segmentation",
        metavar="FILE",
        type=Path,
        help="long form: YAML with wav, offset and duration of each reference sentence",
    )
    parser.add_argument(
        "--resegmenter",
        choices=get_args(Resegmenter),
        default="omnisteval",
        help="who cuts a long output to the sentences (%(default)s)",
    )
    parser.add_argument(
        "--words",
        metavar="FILE",
        type=Path,
        help="JSON lines, a list of {word, start_ms, end_ms} for each recording: when each word "
        "was spoken",
    )


@dataclass(frozen=True)
class ScoredLog:
    """A log and its scores.

    Attributes:
        report: the scores.
        instances: what was scored: recordings, or the sentences that they were cut to.
        language: of the target, BCP-47; empty if nobody knows.
    """

    report: Report
    instances: tuple[Instance, ...]
    language: str


def score_log(path: Path, options: ScoringOptions) -> ScoredLog:
    """Score a log, or the one log in a folder.

    Raises:
        LogError: a file cannot be read, or they do not fit together.
        ResegmenterError: the re-segmenter is not installed.
    """
    log_path = find_log(path)
    log, reading, language = _read(log_path, options)
    score = score_corpus(log.instances, simuleval_1_0=log.ends_with_eos)
    if options.segmentation is not None:
        references = _read_references(options.references) or ()
        segments = read_segmentation(options.segmentation, references)
        log = resegment(log, segments, reading, language, options.resegmenter)
        # Computation belongs to recordings, not to the sentences that they were cut to.
        factor = score.real_time_factor
        score = replace(score_corpus(log.instances), real_time_factor=factor)
    quality, quality_notes = _score_quality(log, language)
    report = Report(
        version=version("earvoice"),
        path=str(log_path),
        format_name=log.format_name,
        unit=reading.unit,
        reference_rule=(
            "counted as SimulEval does" if reading.compatible else "blanks never count"
        ),
        word_rule=log.word_rule,
        score=score,
        quality=quality,
        notes=(*log.notes, *_clock_notes(log), *quality_notes),
    )
    return ScoredLog(report, log.instances, language)


def read_instances(path: Path, options: ScoringOptions) -> tuple[Log, str]:
    """Return a log, not cut to sentences, and its target language (empty if nobody knows).

    Raises:
        LogError: a file cannot be read, or they do not fit together.
    """
    log, _, language = _read(find_log(path), options)
    return log, language


def _read(path: Path, options: ScoringOptions) -> tuple[Log, ReadingOptions, str]:
    records = read_records(path)
    language = options.language or find_language(records)
    whole = options.segmentation is None
    reading = ReadingOptions(
        unit=options.unit or default_unit(language),
        compatible=options.compatible,
        references=_read_references(options.references) if whole else None,
        elapsed_clock=options.elapsed_clock,
    )
    log = read_log(path, records, reading)
    if options.words is not None:
        log = place_spoken_words(log, read_spoken_words(options.words))
    return log, reading, language


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
