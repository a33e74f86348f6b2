"""simulstream's JSON lines: every segment's audio, computation, new and deleted tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path, PurePath
from typing import Any

from earvoice.evaluation.instance import (
    ElapsedClock,
    Instance,
    Unit,
    elapsed_by_clock,
    released_together,
    segment_elapsed,
    snap_to_end,
    split_text,
)
from earvoice.evaluation.log import Log, LogError, ReadingOptions, Record

# SentencePiece's sign for a blank before a token.
_BLANK = "\N{LOWER ONE EIGHTH BLOCK}"
_WORD_RULE = "at the last segment that changed them (simulstream's rule)"
_NOTES = (
    "simulstream prints the clock 'segment', which hides a backlog",
    "tokens with \N{LOWER ONE EIGHTH BLOCK} are read as SentencePiece, others as whole units",
)


@dataclass
class _Output:
    """A growing output: each unit knows the segment that last changed it."""

    unit: Unit
    tokens: list[str] = field(default_factory=list)
    units: list[str] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)

    def change(self, record: Record, segment: int) -> None:
        """Take back the deleted tokens of a segment, then add its new ones."""
        deleted = record.texts("deleted_tokens")
        kept = len(self.tokens) - len(deleted)
        if kept < 0 or self.tokens[kept:] != deleted:
            raise LogError(record.place, f"deleted_tokens = {deleted!r}: must end the output")
        self._replace(self.tokens[:kept], segment)
        self._replace([*self.tokens, *record.texts("generated_tokens")], segment)

    def _replace(self, tokens: list[str], segment: int) -> None:
        units = split_text(join_tokens(tokens, self.unit), self.unit)
        pairs = zip(self.units, units, strict=False)
        unchanged = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self.segments[unchanged:] = [segment] * (len(units) - unchanged)
        self.tokens, self.units = tokens, units


def join_tokens(tokens: Sequence[str], unit: Unit) -> str:
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
    options.check_references(path, len(groups))
    instances = tuple(
        _read_instance(recording, position, group, options)
        for position, (recording, group) in enumerate(groups.items())
    )
    return Log("simulstream 1.0 JSON lines", instances, _WORD_RULE, _NOTES)


def _read_instance(
    recording: str, position: int, records: Sequence[Record], options: ReadingOptions
) -> Instance:
    output = _Output(options.unit)
    for segment, record in enumerate(records):
        output.change(record, segment)
    ends_ms = [1000 * record.number("total_audio_processed") for record in records]
    computations_ms = [1000 * record.number("computation_time") for record in records]
    clocks = _clocks(ends_ms, computations_ms)
    reference = options.reference(position)
    with records[-1].checking():
        return Instance(
            name=PurePath(recording).stem,
            source=recording,
            unit=options.unit,
            source_length_ms=ends_ms[-1],
            delays_ms=snap_to_end([ends_ms[s] for s in output.segments], ends_ms[-1]),
            elapsed_ms={
                clock: tuple(times_ms[segment] for segment in output.segments)
                for clock, times_ms in clocks.items()
            },
            prediction=join_tokens(output.tokens, options.unit),
            reference=reference,
            reference_units=options.reference_units(reference),
            computation_ms=sum(computations_ms),
        )


def _clocks(
    ends_ms: Sequence[float], computations_ms: Sequence[float]
) -> dict[ElapsedClock, tuple[float, ...]]:
    segments = [
        released_together(*times, 1) for times in zip(ends_ms, computations_ms, strict=True)
    ]
    return {**elapsed_by_clock(segments), "segment": segment_elapsed(segments)}


_MS = 1000


def describe_runs(records: Sequence[Record], unit: Unit) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log; the services had loaded their model before."""
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
