"""The segments and utterances of a line of our ``instances.log``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from earvoice.evaluation.clock import ElapsedClock, Segment, delays, released_together
from earvoice.evaluation.instance import Instance, snap_to_end
from earvoice.evaluation.readers.log import LogError, ReadingOptions
from earvoice.evaluation.readers.record import Record

# Logs round to microseconds or to tenths of a millisecond.
_ROUNDING_MS = 0.05


def read_segments(record: Record) -> tuple[Segment, ...]:
    """Return every segment of a run that decided all of them; none if the log has none.

    Raises:
        LogError: an impossible value, or they do not agree with the delays.
    """
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
    return Segment(end_ms, computation_ms, offsets_ms)


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
    """Return the utterances that have output, with times relative to their own start.

    Raises:
        LogError: an impossible value, or they do not agree with the delays.
    """
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
