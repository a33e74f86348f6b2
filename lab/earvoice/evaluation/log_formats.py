"""Detects the format of a log of translations, one of the field's tools or ours, and reads it.

The formats: ``instances.log`` of SimulEval 1.0 and 1.1, and ours, which has more fields;
OmniSTEval's JSON lines of a long output, cut to the reference sentences, with times from the
sentence's start, which can be below 0; simulstream's, with every segment's audio, computation, new
and deleted tokens; and the output of ``earvoice translate --format jsonl``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, takewhile
from pathlib import Path, PurePath
from typing import Any, get_args

from earvoice.client.errors import AudioSourceError
from earvoice.evaluation.instance import (
    ElapsedClock,
    Instance,
    TimedSegment,
    Unit,
    delays,
    elapsed_by_clock,
    released_together,
    segment_elapsed,
    split_text,
)
from earvoice.evaluation.log import Log, LogError, ReadingOptions, Record

_NAMES = ("instances.log", "instances.resegmented.jsonl")
_TRANSLATION_FIELDS = ("delay_ms", "cause", "tentative")
_SIMULSTREAM_FIELDS = ("model_loading_time", "metadata", "total_audio_processed")


def find_log(path: Path) -> Path:
    """Return the log that a path names: the file itself, or the one log in a folder."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise LogError(str(path), "no such file or folder")
    for name in _NAMES:
        if (path / name).is_file():
            return path / name
    others = sorted(path.glob("*.jsonl"))
    if len(others) == 1:
        return others[0]
    found = ", ".join(other.name for other in others) or "none"
    raise LogError(
        str(path),
        f"must hold {' or '.join(_NAMES)}, or one *.jsonl (found: {found}); name the file",
    )


def read_log(path: Path, records: Sequence[Record], options: ReadingOptions) -> Log:
    """Return a log of any known format."""
    first = records[0]
    if any(name in first for name in _TRANSLATION_FIELDS):
        return read_translation(path, records, options)
    if any(name in first for name in _SIMULSTREAM_FIELDS):
        return read_simulstream(path, records, options)
    if "delays" in first:
        return read_simuleval(path, records, options)
    if "emission_cu" in first or "segid" in first:
        return read_omnisteval(path, records, options)
    raise LogError(
        first.place,
        f"fields {', '.join(first.fields)} are of no known log (instances.log of SimulEval 1.0 and "
        "1.1, OmniSTEval's resegmented JSON lines, simulstream's, those of earvoice translate)",
    )


EOS = "</s>"
_AGENTS_RULE = "as the agent that wrote the log released them"
_COMPUTATION_NOTE = (
    "RTF: such a log tells the computation up to the last released unit only; what came after is "
    "missing"
)
_UNMEASURED_NOTE = (
    "computation-aware times are left out: elapsed is missing or 0 throughout, as where SimulEval "
    "reads text, so no computation was measured"
)
_NOTES_1_0 = (
    f"{EOS} counts as a unit of the hypothesis, as it does in such a log",
    "RTF: such a log tells the computation up to the last released unit only",
    "the rows 'SimulEval 1.0' are what that version printed; all others follow 1.1",
)


def read_simuleval(path: Path, records: Sequence[Record], options: ReadingOptions) -> Log:
    """Return an ``instances.log``; ours is that of 1.1 with more fields."""
    # Version 1.0 wrote its metrics into the log, or the end of sentence as a unit.
    is_1_0 = any(
        "metric" in record or str(record.fields.get("prediction", "")).endswith(EOS)
        for record in records
    )
    read = partial(_read_simuleval_line, options=options, ends_with_eos=is_1_0)
    instances = options.read_each(path, records, read)
    if is_1_0:
        rule = f"{_AGENTS_RULE}; the end of sentence is a unit"
        name = "SimulEval 1.0 instances.log"
        return Log(name, instances, rule, _NOTES_1_0, ends_with_eos=True)
    complete = all("segments" in record or "computation_ms" in record for record in records)
    spoken = [instance for instance in instances if instance.unit_count]
    measured = not spoken or any(instance.elapsed_ms for instance in spoken)
    notes = () if complete else (_COMPUTATION_NOTE if measured else _UNMEASURED_NOTE,)
    word_ms = records[0].number("source_word_ms") if "source_word_ms" in records[0] else None
    name = "SimulEval 1.1 instances.log"
    return Log(name, instances, _AGENTS_RULE, notes, source_word_ms=word_ms)


def _read_simuleval_line(
    position: int, record: Record, options: ReadingOptions, *, ends_with_eos: bool
) -> Instance:
    prediction, delays_ms = record.text("prediction"), record.numbers("delays")
    if ends_with_eos:
        prediction = prediction.removesuffix(EOS).rstrip()
    units = len(split_text(prediction, options.unit))
    # A truncated hypothesis has no end of sentence.
    if not ends_with_eos or len(delays_ms) != units:
        _check_units(record, units + ends_with_eos, len(delays_ms), options)
    segments = read_segments(record)
    elapsed_ms = elapsed_by_clock(segments) if segments else {}
    logged = record.numbers("elapsed") if ends_with_eos or "elapsed" in record else ()
    clock = _read_clock(record, options)
    # For text, SimulEval logs zeros, or nothing: no computation was measured.
    if any(logged) or ends_with_eos:
        elapsed_ms[clock] = logged
    intervals = record.pairs("source_intervals") if "source_intervals" in record else None
    computation_ms = _read_computation(record, segments, elapsed_ms)
    if ends_with_eos:
        # Independent of the clock that its times are taken for.
        computation_ms = logged[-1] - delays_ms[-1] if logged and delays_ms else None
    return options.instance(
        record.place,
        options.reference(position, record.optional_text("reference")),
        record.number("source_length"),
        delays_ms,
        elapsed_ms=elapsed_ms,
        prediction=prediction,
        source_ends_ms=None if intervals is None else tuple(end for _, end in intervals),
        computation_ms=computation_ms,
        # An end of sentence belongs to no part of the recording, so it must not be cut by source.
        source="" if ends_with_eos else _read_source(record),
        utterances=_cut_utterances(record, elapsed_ms, options),
    )


def _check_units(record: Record, units: int, delay_count: int, options: ReadingOptions) -> None:
    if units != delay_count:
        other = "char" if options.unit == "word" else "word"
        raise LogError(
            record.place,
            f"prediction has {units} units ({options.unit}), delays has {delay_count}: "
            f"they must be equal; perhaps the log counts --unit {other}",
        )


def _read_clock(record: Record, options: ReadingOptions) -> ElapsedClock:
    name = record.optional_text("elapsed_clock")
    if name is None:
        return options.elapsed_clock or "simuleval"
    clocks: dict[str, ElapsedClock] = {clock: clock for clock in get_args(ElapsedClock)}
    if name not in clocks:
        allowed = ", ".join(clocks)
        raise LogError(record.place, f"elapsed_clock = {name!r}: must be one of {allowed}")
    return clocks[name]


def _read_source(record: Record) -> str:
    """Return the recording's path; SimulEval writes it alone or as the first of several lines."""
    match record.fields.get("source"):
        case str(path) | [str(path), *_]:
            return path
        case _:
            return ""


def _read_computation(
    record: Record,
    segments: Sequence[TimedSegment],
    elapsed_ms: Mapping[ElapsedClock, Sequence[float]],
) -> float | None:
    if "computation_ms" in record:
        return record.number("computation_ms")
    if segments:
        return sum(segment.computation_ms for segment in segments)
    times_ms, delays_ms = elapsed_ms.get("simuleval"), record.numbers("delays")
    return times_ms[-1] - delays_ms[-1] if times_ms and delays_ms else None


# Logs round to microseconds or to tenths of a millisecond.
_ROUNDING_MS = 0.05


def read_segments(record: Record) -> tuple[TimedSegment, ...]:
    """Return every segment of a run that decided all of them; empty if the log has none."""
    if "segments" not in record:
        return ()
    segments = tuple(_read_segment(segment) for segment in record.records("segments"))
    logged, replayed = record.numbers("delays"), delays(segments)
    if len(logged) != len(replayed):
        raise LogError(
            record.place,
            f"segments released {len(replayed)} units: must be as many as delays, {len(logged)}",
        )
    for delay_ms, end_ms in zip(logged, replayed, strict=True):
        if abs(delay_ms - end_ms) > _ROUNDING_MS:
            raise LogError(
                record.place,
                f"delays = {delay_ms}: must be the end of the unit's segment, {end_ms}",
            )
    return segments


def _read_segment(record: Record) -> TimedSegment:
    end_ms, computation_ms = record.number("end_ms"), record.number("computation_ms")
    units = _read_count(record)
    if computation_ms < 0:
        raise LogError(record.place, f"computation_ms = {computation_ms}: must be 0 or above")
    if "offsets_ms" not in record:
        return released_together(end_ms, computation_ms, units)
    offsets_ms = record.numbers("offsets_ms")
    if len(offsets_ms) != units:
        raise LogError(record.place, f"{len(offsets_ms)} offsets_ms: must be as many as units")
    for offset_ms in offsets_ms:
        if not -_ROUNDING_MS <= offset_ms <= computation_ms + _ROUNDING_MS:
            allowed = f"must be within the segment's computation, {computation_ms}"
            raise LogError(record.place, f"offsets_ms = {offset_ms}: {allowed}")
    return TimedSegment(end_ms, computation_ms, offsets_ms)


def _read_count(record: Record) -> int:
    units = record.number("units")
    if units < 0 or units != int(units):
        raise LogError(record.place, f"units = {units}: must be a whole number, 0 or above")
    return int(units)


def _cut_utterances(
    record: Record, elapsed_ms: Mapping[ElapsedClock, Sequence[float]], options: ReadingOptions
) -> tuple[Instance, ...]:
    """Return the utterances that have output, with times relative to their own start."""
    if "utterances" not in record:
        return ()
    borders = record.records("utterances")
    counts = [_read_count(border) for border in borders]
    delays_ms = record.numbers("delays")
    if sum(counts) != len(delays_ms):
        allowed = f"must be as many as delays, {len(delays_ms)}"
        raise LogError(record.place, f"utterances have {sum(counts)} units: {allowed}")
    parts: list[Instance] = []
    for border, first, count in zip(borders, accumulate(counts, initial=0), counts, strict=False):
        if count:
            own = slice(first, first + count)
            parts.append(
                _utterance(
                    f"{record.place}, utterance {len(parts)}",
                    border.number("start_ms"),
                    border.number("end_ms"),
                    delays_ms[own],
                    {clock: times_ms[own] for clock, times_ms in elapsed_ms.items()},
                    options,
                )
            )
    return tuple(parts)


def _utterance(
    place: str,
    start_ms: float,
    end_ms: float,
    delays_ms: Sequence[float],
    elapsed_ms: Mapping[ElapsedClock, Sequence[float]],
    options: ReadingOptions,
) -> Instance:
    """Return an utterance, with times relative to its own start."""
    return options.instance(
        place,
        None,
        end_ms - start_ms,
        [d - start_ms for d in delays_ms],
        elapsed_ms={
            clock: tuple(e - start_ms for e in times_ms) for clock, times_ms in elapsed_ms.items()
        },
    )


_REPORT_NAME = "evaluation_report.txt"
_OMNISTEVAL_RULE = "as the log that OmniSTEval cut released them"
_LONG_FORM_NOTE = (
    "long form: YAAL is LongYAAL (cut at the end of the recording), AL is LongAL and so on; no ATD "
    "for segments cut out of a stream"
)
_OMNISTEVAL_CLOCK_NOTE = (
    "computation-aware times are left out: the log does not say their clock; give it with "
    f"--elapsed-clock (segment if OmniSTEval corrected them), or keep {_REPORT_NAME} beside it"
)


def read_omnisteval(path: Path, records: Sequence[Record], options: ReadingOptions) -> Log:
    report = path.with_name(_REPORT_NAME)
    report_text = report.read_text(encoding="utf8") if report.is_file() else ""
    clock = options.elapsed_clock or _find_omnisteval_clock(report_text)
    read = partial(_read_omnisteval_line, clock=clock, options=options)
    instances = options.read_each(path, records, read)
    unsaid = clock is None and any("emission_ca" in record for record in records)
    notes = (_LONG_FORM_NOTE, _OMNISTEVAL_CLOCK_NOTE) if unsaid else (_LONG_FORM_NOTE,)
    version = re.search(r"OmniSTEval v(\S+)", report_text)
    name = f"OmniSTEval {version[1]}" if version else "OmniSTEval"
    return Log(f"{name} resegmented JSON lines", instances, _OMNISTEVAL_RULE, notes)


def _find_omnisteval_clock(report: str) -> ElapsedClock | None:
    """Return the clock according to OmniSTEval's own report.

    With its correction, a word's time is its delay plus its own segment's computation. Without, the
    times are those of the original log.
    """
    return "segment" if re.search(r"Fix CA emissions\s+yes", report) else None


def _read_omnisteval_line(
    position: int, record: Record, clock: ElapsedClock | None, options: ReadingOptions
) -> Instance:
    prediction = record.text("prediction")
    delays_ms = record.numbers("emission_cu") if "emission_cu" in record else ()
    _check_units(record, len(split_text(prediction, options.unit)), len(delays_ms), options)
    source_length_ms = record.number("source_length")
    aware = "emission_ca" in record or not delays_ms
    elapsed_ms = record.numbers("emission_ca") if "emission_ca" in record else ()
    ending = "time_to_recording_end"
    return options.instance(
        record.place,
        options.reference(position, record.optional_text("reference")),
        source_length_ms,
        delays_ms,
        elapsed_ms={clock: elapsed_ms} if clock and aware else {},
        prediction=prediction,
        recording_end_ms=record.number(ending) if ending in record else source_length_ms,
    )


# SentencePiece's mark for a blank before a token.
_MS = 1000
_BLANK = "\N{LOWER ONE EIGHTH BLOCK}"
_UTTERANCE_NOTE = (
    "LAAL* takes an instance for one utterance: the log does not say where utterances end"
)
_SIMULSTREAM_RULE = "at the last segment that changed them (simulstream's rule)"
_SIMULSTREAM_NOTES = (
    "simulstream prints the clock 'segment', which hides a backlog",
    "tokens with \N{LOWER ONE EIGHTH BLOCK} are read as SentencePiece, others as whole units",
    _UTTERANCE_NOTE,
)


def _join_tokens(tokens: Sequence[str], unit: Unit) -> str:
    """Return the text of tokens: SentencePiece's, or whole words or characters."""
    if any(_BLANK in token for token in tokens):
        return "".join(tokens).replace(_BLANK, " ").strip()
    return (" " if unit == "word" else "").join(tokens)


def read_simulstream(path: Path, records: Sequence[Record], options: ReadingOptions) -> Log:
    """Return the log; recordings in the order in which they were begun."""
    names: dict[str, str] = {}
    groups: dict[str, list[Record]] = {}
    for record in records:
        if "id" not in record:
            continue
        identifier = str(record.fields["id"])
        if "metadata" in record:
            names[identifier] = record.record("metadata").text("wav_name")
        elif identifier not in names:
            raise LogError(record.place, f"id = {identifier}: no line before names its recording")
        else:
            groups.setdefault(names[identifier], []).append(record)
    read = partial(_read_simulstream_recording, options=options)
    instances = options.read_each(path, list(groups.items()), read)
    return Log("simulstream 1.0 JSON lines", instances, _SIMULSTREAM_RULE, _SIMULSTREAM_NOTES)


def _read_simulstream_recording(
    position: int, part: tuple[str, Sequence[Record]], options: ReadingOptions
) -> Instance:
    recording, records = part
    tokens, units = list[str](), list[str]()
    # The segment that last changed each unit.
    changed: list[int] = []
    for segment, record in enumerate(records):
        deleted = record.texts("deleted_tokens")
        kept = len(tokens) - len(deleted)
        if kept < 0 or tokens[kept:] != deleted:
            raise LogError(record.place, f"deleted_tokens = {deleted!r}: must end the output")
        shorter = tokens[:kept]
        for tokens in (shorter, [*shorter, *record.texts("generated_tokens")]):
            before, units = units, split_text(_join_tokens(tokens, options.unit), options.unit)
            pairs = zip(before, units, strict=False)
            unchanged = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            changed[unchanged:] = [segment] * (len(units) - unchanged)
    ends_ms = [_MS * record.number("total_audio_processed") for record in records]
    computations_ms = [_MS * record.number("computation_time") for record in records]
    timed = [released_together(*times, 1) for times in zip(ends_ms, computations_ms, strict=True)]
    clocks = {**elapsed_by_clock(timed), "segment": segment_elapsed(timed)}
    return options.instance(
        records[-1].place,
        options.reference(position),
        ends_ms[-1],
        [ends_ms[segment] for segment in changed],
        name=PurePath(recording).stem,
        source=recording,
        elapsed_ms={
            clock: tuple(times_ms[segment] for segment in changed)
            for clock, times_ms in clocks.items()
        },
        prediction=_join_tokens(tokens, options.unit),
        computation_ms=sum(computations_ms),
    )


def describe_runs(records: Sequence[Record], unit: Unit) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log; loading time is 0, as the services had loaded their model."""
    yield {"model_loading_time": 0.0}
    for record in records:
        identifier = int(record.number("index"))
        yield {"id": identifier, "metadata": {"wav_name": record.texts("source")[0]}}
        units = iter(split_text(record.text("prediction"), unit))
        for segment in record.records("segments" if "segments" in record else "merged_segments"):
            yield {
                "id": identifier,
                "total_audio_processed": segment.number("end_ms") / _MS,
                "computation_time": segment.number("computation_ms") / _MS,
                "generated_tokens": [next(units) for _ in range(int(segment.number("units")))],
                "deleted_tokens": [],
            }


_RELEASE_RULE = "when the service released them (their last piece, where a word came in pieces)"
_UNSAID_CLOCK_NOTE = (
    "elapsed_ms is left out: the log does not say its clock; give --elapsed-clock live (sent at "
    "real time) or true (at full speed)"
)
_SILENCE_NOTE = "a recording that was not translated to its end leaves no line, and is not counted"


def read_translation(path: Path, records: Sequence[Record], options: ReadingOptions) -> Log:
    """Return the log; an instance is a recording, in the log's order."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.text("file"), []).append(record)
    clock = options.elapsed_clock or _find_session_clock(records)
    read = partial(_read_translated, log_path=path, clock=clock, options=options)
    instances = options.read_each(path, list(groups.values()), read)
    notes = [_SILENCE_NOTE]
    if clock is None:
        notes.append(_UNSAID_CLOCK_NOTE)
    if not all(instance.utterances for instance in instances):
        notes.append(_UTTERANCE_NOTE)
    return Log("earvoice translate JSON lines", instances, _RELEASE_RULE, tuple(notes))


def in_one_language(
    path: Path, records: Sequence[Record], given: str
) -> tuple[Sequence[Record], str]:
    """Return the records to score and their target language, empty if unknown.

    Args:
        given: the language to score if the log has several; otherwise the one to count units by.
    """
    told = [record.optional_text("target_language") for record in records]
    languages = sorted({language for language in told if language})
    if len(languages) < 2:  # noqa: PLR2004 - several
        return records, given or "".join(languages)
    if given not in languages:
        raise LogError(
            str(path),
            f"has {' and '.join(languages)}, which are scored one by one: --language names one",
        )
    return [r for r, tag in zip(records, told, strict=True) if tag in (given, None)], given


def _find_session_clock(records: Sequence[Record]) -> ElapsedClock | None:
    for record in records:
        match record.optional_text("elapsed_clock"):
            case "live":
                return "live"
            case "true":
                return "true"
    return None


def _read_translated(
    position: int,
    records: Sequence[Record],
    log_path: Path,
    clock: ElapsedClock | None,
    options: ReadingOptions,
) -> Instance:
    items = [record for record in records if "text" in record]
    borders = [record for record in records if "cause" in record]
    texts = (
        f" {item.text('text')}" if item.fields.get("starts_word") else item.text("text")
        for item in items
    )
    units = _units_of(items, options.unit)
    return options.instance(
        records[-1].place,
        options.reference(position),
        _source_length_ms(log_path, records[0], borders),
        [unit.number("delay_ms") for unit in units],
        name=records[0].text("file"),
        elapsed_ms={clock: tuple(unit.number("elapsed_ms") for unit in units)} if clock else {},
        prediction="".join(texts).strip(),
        source_ends_ms=tuple(unit.number("source_end_ms") for unit in units),
        utterances=tuple(_cut_translated(border, units, clock, options) for border in borders),
    )


def _units_of(items: Sequence[Record], unit: Unit) -> list[Record]:
    """Return for each word or character the last item that had a piece of it."""
    units: list[Record] = []
    for item in items:
        # This piece continues the previous word, which therefore counts as released only now.
        if unit == "word" and units and not item.fields.get("starts_word"):
            units.pop()
        units += [item] * len(split_text(item.text("text"), unit))
    return units


def _cut_translated(
    border: Record, units: Sequence[Record], clock: ElapsedClock | None, options: ReadingOptions
) -> Instance:
    number = int(border.number("utterance"))
    own = [unit for unit in units if unit.number("utterance") == number]
    return _utterance(
        f"{border.text('file')}, utterance {number}",
        border.number("source_start_ms"),
        border.number("source_end_ms"),
        [unit.number("delay_ms") for unit in own],
        {clock: [unit.number("elapsed_ms") for unit in own]} if clock else {},
        options,
    )


def _source_length_ms(log_path: Path, record: Record, borders: Sequence[Record]) -> float:
    """Return a recording's length: the file's, else the end of the last utterance."""
    name, problem = Path(record.text("file")), "keep it beside the log"
    for recording in (name, log_path.parent / name, log_path.parent / name.name):
        if recording.is_file():
            try:
                # Only this format needs the library that reads recordings.
                from earvoice.client.audio_file import AudioFile  # noqa: PLC0415

                with AudioFile(recording) as audio:
                    return audio.duration_ms
            except AudioSourceError as error:  # a text, or one that only ffmpeg reads
                problem = str(error)
    if borders:
        return max(border.number("source_end_ms") for border in borders)
    raise LogError(
        record.place,
        f"file = {str(name)!r}: nobody knows how long it is, and no utterance ends in the log; "
        f"{problem}",
    )
