"""The segments and utterances of a line of our ``instances.log``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import get_args

from earvoice.evaluation.instance import (
    ElapsedClock,
    Instance,
    TimedSegment,
    delays,
    elapsed_by_clock,
    released_together,
    snap_to_end,
    split_text,
)
from earvoice.evaluation.log import Log, LogError, ReadingOptions, Record

# Logs round to microseconds or to tenths of a millisecond.
_ROUNDING_MS = 0.05


def read_segments(record: Record) -> tuple[TimedSegment, ...]:
    """Return every segment of a run that decided all of them; none if the log has none."""
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


def cut_utterances(
    record: Record,
    elapsed_ms: Mapping[ElapsedClock, Sequence[float]],
    options: ReadingOptions,
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
        if count == 0:
            continue
        start_ms, end_ms = border.number("start_ms"), border.number("end_ms")
        own = slice(first, first + count)
        parts.append(
            Instance(
                name=f"{record.place}, utterance {len(parts)}",
                unit=options.unit,
                source_length_ms=end_ms - start_ms,
                delays_ms=snap_to_end([d - start_ms for d in delays_ms[own]], end_ms - start_ms),
                elapsed_ms={
                    clock: tuple(e - start_ms for e in times_ms[own])
                    for clock, times_ms in elapsed_ms.items()
                },
            )
        )
    return tuple(parts)


_WORD_RULE = "as the agent that wrote the log released them"
_COMPUTATION_NOTE = (
    "RTF: such a log tells the computation up to the last released unit only; what came after is "
    "missing"
)


def read_simuleval_1_1(path: Path, records: Sequence[Record], options: ReadingOptions) -> Log:
    options.check_references(path, len(records))
    instances = tuple(
        _read_instance(position, record, options) for position, record in enumerate(records)
    )
    complete = all("segments" in record or "computation_ms" in record for record in records)
    notes = () if complete else (_COMPUTATION_NOTE,)
    word_ms = records[0].number("source_word_ms") if "source_word_ms" in records[0] else None
    return Log("SimulEval 1.1 instances.log", instances, _WORD_RULE, notes, source_word_ms=word_ms)


def _read_instance(position: int, record: Record, options: ReadingOptions) -> Instance:
    prediction = record.text("prediction")
    delays_ms = record.numbers("delays")
    check_unit_count(record, len(split_text(prediction, options.unit)), len(delays_ms), options)
    source_length_ms = record.number("source_length")
    segments = read_segments(record)
    elapsed_ms = _read_elapsed(record, segments, options)
    reference = options.reference(position, record.optional_text("reference"))
    with record.checking():
        return Instance(
            name=record.place,
            unit=options.unit,
            source_length_ms=source_length_ms,
            delays_ms=snap_to_end(delays_ms, source_length_ms),
            elapsed_ms=elapsed_ms,
            prediction=prediction,
            reference=reference,
            reference_units=options.reference_units(reference),
            source_ends_ms=_read_source_ends(record),
            computation_ms=_read_computation(record, segments, elapsed_ms),
            source=_read_source(record),
            utterances=cut_utterances(record, elapsed_ms, options),
        )


def check_unit_count(record: Record, units: int, delay_count: int, options: ReadingOptions) -> None:
    if units != delay_count:
        other = "char" if options.unit == "word" else "word"
        raise LogError(
            record.place,
            f"prediction has {units} units ({options.unit}), delays has {delay_count}: "
            f"there must be as many; perhaps the log counts --unit {other}",
        )


def _read_elapsed(
    record: Record, segments: Sequence[TimedSegment], options: ReadingOptions
) -> Mapping[ElapsedClock, tuple[float, ...]]:
    logged = record.numbers("elapsed") if "elapsed" in record else ()
    clock = _read_clock(record, options)
    elapsed_ms = elapsed_by_clock(segments) if segments else {}
    # Text-to-text agents log zeros, or nothing: no computation was measured.
    if any(logged):
        elapsed_ms[clock] = logged
    return elapsed_ms


def _read_clock(record: Record, options: ReadingOptions) -> ElapsedClock:
    name = record.optional_text("elapsed_clock")
    if name is None:
        return options.elapsed_clock or "simuleval"
    clocks: dict[str, ElapsedClock] = {clock: clock for clock in get_args(ElapsedClock)}
    if name not in clocks:
        allowed = ", ".join(clocks)
        raise LogError(record.place, f"elapsed_clock = {name!r}: must be one of {allowed}")
    return clocks[name]


def _read_source_ends(record: Record) -> tuple[float, ...] | None:
    if "source_intervals" not in record:
        return None
    return tuple(interval[1] for interval in record.pairs("source_intervals"))


def _read_source(record: Record) -> str:
    """Return the recording's path; SimulEval writes it as the first line of several, or alone."""
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


EOS = "</s>"
_WORD_RULE_1_0 = "as the agent that wrote the log released them; the end of sentence is a unit"
_NOTES_1_0 = (
    f"{EOS} counts as a unit of the hypothesis, as it does in such a log",
    "RTF: such a log tells the computation up to the last released unit only",
    "the rows 'SimulEval 1.0' are what that version printed; all others follow 1.1",
)


def read_simuleval_1_0(path: Path, records: Sequence[Record], options: ReadingOptions) -> Log:
    options.check_references(path, len(records))
    instances = tuple(
        _read_instance_1_0(position, record, options) for position, record in enumerate(records)
    )
    return Log(
        "SimulEval 1.0 instances.log", instances, _WORD_RULE_1_0, _NOTES_1_0, ends_with_eos=True
    )


def _read_instance_1_0(position: int, record: Record, options: ReadingOptions) -> Instance:
    prediction = record.text("prediction").removesuffix(EOS).rstrip()
    delays_ms, elapsed_ms = record.numbers("delays"), record.numbers("elapsed")
    units = len(split_text(prediction, options.unit))
    # A hypothesis that was cut off before its end has no end of sentence.
    if len(delays_ms) != units:
        check_unit_count(record, units + 1, len(delays_ms), options)
    source_length_ms = record.number("source_length")
    reference = options.reference(position, record.optional_text("reference"))
    with record.checking():
        return Instance(
            name=record.place,
            unit=options.unit,
            source_length_ms=source_length_ms,
            delays_ms=snap_to_end(delays_ms, source_length_ms),
            elapsed_ms={options.elapsed_clock or "simuleval": elapsed_ms},
            prediction=prediction,
            reference=reference,
            reference_units=options.reference_units(reference),
            computation_ms=elapsed_ms[-1] - delays_ms[-1] if elapsed_ms and delays_ms else None,
        )
