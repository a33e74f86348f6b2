"""``instances.log`` of SimulEval 1.1, and of EarVoice, which adds fields to it.

* ``elapsed_clock``: the clock of ``elapsed``; SimulEval's own is ``simuleval``.
* ``segments``: every segment of a run that decided all of them, so that the other clocks can be
  replayed: ``{"end_ms", "computation_ms", "units", "offsets_ms"}`` with the number of units that it
  released, and how long after its start each left (all at its end, if that is not said).
* ``merged_segments``: those of a run that merged some; they tell no clock.
* ``computation_ms``: the total.
* ``source_intervals``: what each unit attends to, ``[start, end]`` in ms.
* ``utterances``: ``{"start_ms", "end_ms", "units"}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from earvoice.evaluation.clock import ElapsedClock, Segment, replay
from earvoice.evaluation.instance import Instance, snap_to_end
from earvoice.evaluation.readers.log import Log, LogError, ReadingOptions
from earvoice.evaluation.readers.record import Record
from earvoice.evaluation.readers.segment import cut_utterances, read_segments
from earvoice.evaluation.text_unit import split_text

_WORD_RULE = "as the agent that wrote the log released them"
_COMPUTATION_NOTE = (
    "RTF: such a log tells the computation up to the last released unit only; what came after is "
    "missing"
)


def read_simuleval_1_1(path: Path, records: Sequence[Record], options: ReadingOptions) -> Log:
    """Return the log.

    Raises:
        LogError: a line lacks a field, or holds an impossible value.
    """
    options.check_references(path, len(records))
    instances = tuple(
        _read_instance(position, record, options) for position, record in enumerate(records)
    )
    complete = all("segments" in record or "computation_ms" in record for record in records)
    notes = () if complete else (_COMPUTATION_NOTE,)
    return Log("SimulEval 1.1 instances.log", instances, _WORD_RULE, notes)


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
    """Check that the prediction has a unit for each delay.

    Raises:
        LogError: it has not: the log counts something else.
    """
    if units != delay_count:
        other = "char" if options.unit == "word" else "word"
        raise LogError(
            record.place,
            f"prediction has {units} units ({options.unit}), delays has {delay_count}: "
            f"there must be as many; perhaps the log counts --unit {other}",
        )


def _read_elapsed(
    record: Record, segments: Sequence[Segment], options: ReadingOptions
) -> Mapping[ElapsedClock, tuple[float, ...]]:
    logged = record.numbers("elapsed") if "elapsed" in record else ()
    clock = _read_clock(record, options)
    elapsed_ms: dict[ElapsedClock, tuple[float, ...]] = dict(replay(segments)) if segments else {}
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
    segments: Sequence[Segment],
    elapsed_ms: Mapping[ElapsedClock, Sequence[float]],
) -> float | None:
    if "computation_ms" in record:
        return record.number("computation_ms")
    if segments:
        return sum(segment.computation_ms for segment in segments)
    times_ms, delays_ms = elapsed_ms.get("simuleval"), record.numbers("delays")
    return times_ms[-1] - delays_ms[-1] if times_ms and delays_ms else None
