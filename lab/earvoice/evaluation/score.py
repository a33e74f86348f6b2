"""``earvoice score``: latency and quality of a log of translations."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import get_args

from earvoice.cli.command import Command, CommandError, ExitCode
from earvoice.evaluation.instance import ElapsedClock, Instance, Unit, default_unit
from earvoice.evaluation.log import (
    Log,
    ReadingOptions,
    place_spoken_words,
    read_lines,
    read_records,
    read_spoken_words,
)
from earvoice.evaluation.log_formats import find_log, in_one_language, read_log
from earvoice.evaluation.long_form import Resegmenter, read_segmentation, resegment
from earvoice.evaluation.metrics import CorpusScore, known_clocks, score_corpus
from earvoice.evaluation.quality import Quality, score_quality

_DECIMALS = 4
_MISSING = "-"


@dataclass(frozen=True)
class Report:
    """Scores, and everything needed to compare them."""

    version: str
    path: str
    format_name: str
    unit: Unit
    reference_rule: str
    word_rule: str
    score: CorpusScore
    quality: Quality | None
    notes: tuple[str, ...]
    source_word_ms: float | None = None

    def as_json(self) -> str:
        return json.dumps({"tool": "earvoice score", **asdict(self)}, ensure_ascii=False, indent=2)

    def as_text(self) -> str:
        score = self.score
        silent = f"{score.silent_count} without output, which latency skips"
        facts = {
            "tool": f"earvoice score {self.version}",
            "log": f"{self.path} ({self.format_name})",
            "instances": f"{score.instance_count}, {silent}",
            "unit": f"{self.unit}; references: {self.reference_rule}",
            "released": self.word_rule,
            "yaal": f"skips instances without a unit before the end: {self._yaal_skips()}",
        }
        lines = [f"{name:10}{fact}" for name, fact in facts.items()]
        blocks = [lines, self._table(), self._quality_lines(), self._note_lines()]
        return "\n\n".join("\n".join(block) for block in blocks if block)

    def _yaal_skips(self) -> str:
        spoken = self.score.instance_count - self.score.silent_count
        means = self.score.rows["YAAL"]
        return ", ".join(f"{spoken - mean.count} on {clock}" for clock, mean in means.items())

    def _table(self) -> list[str]:
        rows = [
            _row(
                "AP (no unit)" if name == "AP" else name,
                [*(_number(mean.value) for mean in means.values()), *self._in_words(name)],
            )
            for name, means in self.score.rows.items()
            if any(mean.count for mean in means.values())
        ]
        words = [] if self.source_word_ms is None else ["ideal, words"]
        return [
            _row("mean, ms", [*self.score.clocks, *words]),
            *rows,
            f"{_row('RTF', [_number(self.score.real_time_factor)])}  (computation / audio)",
            f"{_row('length ratio', [_number(self.score.length_ratio)])}  (units / reference's)",
        ]

    def _in_words(self, name: str) -> list[str]:
        """A mean on the ideal clock in source words, if the source is text."""
        mean = self.score.rows[name].get("ideal")
        if self.source_word_ms is None or mean is None or mean.value is None or name == "AP":
            return []
        return [_number(mean.value / self.source_word_ms)]

    def _quality_lines(self) -> list[str]:
        if self.quality is None:
            return []
        return [
            f"{'BLEU':20}{self.quality.bleu:14.{_DECIMALS}f}  {self.quality.bleu_signature}",
            f"{'chrF':20}{self.quality.chrf:14.{_DECIMALS}f}  {self.quality.chrf_signature}",
            f"{'WER':20}{self.quality.wer:14.{_DECIMALS}f}  {self.quality.wer_signature}",
        ]

    def _note_lines(self) -> list[str]:
        return [f"note: {note}" for note in self.notes]


def _number(value: float | None) -> str:
    return _MISSING if value is None else f"{value:.{_DECIMALS}f}"


def _row(name: str, cells: Iterable[str]) -> str:
    return f"{name:20}" + "".join(f"{cell:>14}" for cell in cells)


SCORES_NAME = "scores.tsv"
_SCORES_HEADER = ("metric", "clock", "value", "instances")


def score_table(report: Report) -> str:
    """Return tab-separated lines of metric, clock, value (unrounded) and number of instances.

    The clock is empty where a metric has none; metrics without a value are left out.
    """
    rows = [_SCORES_HEADER, *_score_rows(report)]
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def _score_rows(report: Report) -> Iterator[tuple[str, str, float, int]]:
    score = report.score
    for metric, means in score.rows.items():
        for clock, mean in means.items():
            if mean.value is not None:
                yield metric, clock, mean.value, mean.count
    for metric, value in (("RTF", score.real_time_factor), ("length ratio", score.length_ratio)):
        if value is not None:
            yield metric, "", value, score.instance_count
    if report.quality is not None:
        yield "BLEU", "", report.quality.bleu, score.instance_count
        yield "chrF", "", report.quality.chrf, score.instance_count
        yield "WER", "", report.quality.wer, score.instance_count


@dataclass(frozen=True)
class ScoringOptions:
    """How to score a log; what is None is detected or left out.

    Attributes:
        references: a file with a line for each instance, or for each sentence of ``segmentation``.
        elapsed_clock: clock of the log's computation-aware times, if the log does not name it.
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
        help="what cuts long output into reference sentences (%(default)s)",
    )
    parser.add_argument(
        "--words",
        metavar="FILE",
        type=Path,
        help="when each word was spoken: JSON lines, a list of {word, start_ms, end_ms} for each "
        "recording",
    )


def score_log(path: Path, options: ScoringOptions) -> tuple[Report, tuple[Instance, ...], str]:
    """Return a log's scores, its instances and its language."""
    log_path = find_log(path)
    references = None if options.references is None else read_lines(options.references)
    log, reading, language = _read(log_path, references, options)
    score = score_corpus(log.instances, simuleval_1_0=log.ends_with_eos)
    if options.segmentation is not None:
        segments = read_segmentation(options.segmentation, references or ())
        log = resegment(log, segments, reading, language, options.resegmenter)
        # Computation is measured for recordings, not for the sentences that they were cut to.
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
        source_word_ms=log.source_word_ms,
    )
    return report, log.instances, language


def _read(
    path: Path, references: tuple[str, ...] | None, options: ScoringOptions
) -> tuple[Log, ReadingOptions, str]:
    records, language = in_one_language(path, read_records(path), options.language or "")
    reading = ReadingOptions(
        unit=options.unit or default_unit(language),
        compatible=options.compatible,
        references=references if options.segmentation is None else None,
        elapsed_clock=options.elapsed_clock,
    )
    log = read_log(path, records, reading)
    if options.words is not None:
        log = place_spoken_words(log, read_spoken_words(options.words))
    return log, reading, language


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
            "length stands in for it, and BLEU, chrF and WER leave them out"
        )
    if not pairs:
        return None, tuple(notes)
    try:
        hypotheses, references = zip(*pairs, strict=True)
        return score_quality(hypotheses, references, language), tuple(notes)
    except CommandError as error:
        return None, (*notes, f"BLEU, chrF and WER are left out: {error}")


def _clock_notes(log: Log) -> tuple[str, ...]:
    spoken = [instance for instance in log.instances if instance.unit_count]
    some = {clock for instance in spoken for clock in instance.elapsed_ms}
    partial = sorted(some - set(known_clocks(spoken)))
    return tuple(
        f"clock {clock} is left out: not every instance with output has it" for clock in partial
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        metavar="PATH",
        type=Path,
        help="a log or its folder: SimulEval 1.0 or 1.1, OmniSTEval, simulstream, or "
        "earvoice translate --format jsonl",
    )
    parser.add_argument(
        "--unit", choices=get_args(Unit), help="what to count (char for zh and ja, else word)"
    )
    parser.add_argument(
        "--language",
        metavar="TAG",
        help="target language, BCP-47: sets the unit and BLEU's tokenizer, and says which language "
        "to score if the log has several",
    )
    parser.add_argument(
        "--references",
        metavar="FILE",
        type=Path,
        help="references, one per line, for logs without them and for --segmentation",
    )
    parser.add_argument(
        "--compatible-splitting",
        action="store_true",
        help="count references as SimulEval does: split words at every single space, and count "
        "spaces as characters",
    )
    parser.add_argument(
        "--elapsed-clock",
        choices=get_args(ElapsedClock),
        help="clock of the log's computation-aware times, if the log does not say",
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
    report, _, _ = score_log(options.path, choices)
    print(report.as_json() if options.format == "json" else report.as_text())  # noqa: T201 - the result
    return ExitCode.DONE


COMMAND = Command(_add_arguments, _run, "print latency and quality of the translations in a log")
