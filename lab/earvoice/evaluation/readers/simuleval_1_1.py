"""``instances.log`` of SimulEval 1.1, and of EarVoice, which adds two fields to it.

``elapsed_clock`` names the clock of ``elapsed`` (SimulEval's own is ``simuleval``). ``segments``
holds every decided segment, so that the other clocks can be replayed:
``{"end_ms", "computation_ms", "units"}`` with the number of units that it released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from earvoice.evaluation.clock import ElapsedClock, Segment, delays, released_together, replay
from earvoice.evaluation.instance import Instance, snap_to_end
from earvoice.evaluation.readers.log import Log, LogError, ReadingOptions
from earvoice.evaluation.readers.record import Record
from earvoice.evaluation.text_unit import split_text

# Logs round to microseconds or to tenths of a millisecond.
_ROUNDING_MS = 0.05
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
    complete = all("segments" in record for record in records)
    notes = () if complete else (_COMPUTATION_NOTE,)
    return Log("SimulEval 1.1 instances.log", instances, _WORD_RULE, notes)


def _read_instance(position: int, record: Record, options: ReadingOptions) -> Instance:
    prediction = record.text("prediction")
    delays_ms = record.numbers("delays")
    check_unit_count(record, len(split_text(prediction, options.unit)), len(delays_ms), options)
    source_length_ms = record.number("source_length")
    segments = _read_segments(record)
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
            computation_ms=_computation_ms(segments, elapsed_ms, delays_ms),
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
    elapsed_ms: dict[ElapsedClock, tuple[float, ...]] = dict(replay(segments)) if segments else {}
    logged = record.numbers("elapsed") if "elapsed" in record else ()
    # Text-to-text agents log zeros, or nothing: no computation was measured.
    if any(logged):
        elapsed_ms[_read_clock(record, options)] = logged
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


def _read_segments(record: Record) -> tuple[Segment, ...]:
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


def _read_segment(record: Record) -> Segment:
    end_ms, computation_ms = record.number("end_ms"), record.number("computation_ms")
    units = record.number("units")
    if units < 0 or units != int(units):
        raise LogError(record.place, f"units = {units}: must be a whole number, 0 or above")
    if computation_ms < 0:
        raise LogError(record.place, f"computation_ms = {computation_ms}: must be 0 or above")
    return released_together(end_ms, computation_ms, int(units))


def _computation_ms(
    segments: Sequence[Segment],
    elapsed_ms: Mapping[ElapsedClock, Sequence[float]],
    delays_ms: Sequence[float],
) -> float | None:
    if segments:
        return sum(segment.computation_ms for segment in segments)
    times_ms = elapsed_ms.get("simuleval")
    return times_ms[-1] - delays_ms[-1] if times_ms and delays_ms else None
