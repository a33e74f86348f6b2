"""JSON lines of ``earvoice translate --format jsonl``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from earvoice.evaluation.instance import ElapsedClock, Instance, snap_to_end, split_text
from earvoice.evaluation.log import Log, LogError, ReadingOptions, Record

_WORD_RULE = "when the service released them (their last piece, where a word came in pieces)"
_CLOCK_NOTE = (
    "elapsed_ms is left out: the log does not say its clock; give --elapsed-clock live (sent at "
    "real time) or true (at full speed)"
)
_UTTERANCE_NOTE = (
    "LAAL* takes a whole recording for one utterance: the log does not say where utterances end"
)
_SILENCE_NOTE = "a recording that was not translated to its end leaves no line, and is not counted"


@dataclass(frozen=True)
class _TimedUnit:
    """A word or a character, with what its last item said."""

    utterance: int
    delay_ms: float
    elapsed_ms: float
    source_end_ms: float


def read_translation(path: Path, records: Sequence[Record], options: ReadingOptions) -> Log:
    """Return the log; an instance is a recording, in the log's order."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.text("file"), []).append(record)
    options.check_references(path, len(groups))
    clock = options.elapsed_clock or _find_clock(records)
    instances = tuple(
        _read_instance(path, position, group, clock, options)
        for position, group in enumerate(groups.values())
    )
    notes = [_SILENCE_NOTE]
    if clock is None:
        notes.append(_CLOCK_NOTE)
    if not all(instance.utterances for instance in instances):
        notes.append(_UTTERANCE_NOTE)
    return Log("earvoice translate JSON lines", instances, _WORD_RULE, tuple(notes))


def find_language(records: Sequence[Record]) -> str:
    languages = (record.optional_text("target_language") for record in records)
    return next((language for language in languages if language), "")


def _find_clock(records: Sequence[Record]) -> ElapsedClock | None:
    for record in records:
        match record.optional_text("elapsed_clock"):
            case "live":
                return "live"
            case "true":
                return "true"
    return None


def _read_instance(
    log_path: Path,
    position: int,
    records: Sequence[Record],
    clock: ElapsedClock | None,
    options: ReadingOptions,
) -> Instance:
    items = [record for record in records if "text" in record]
    borders = [record for record in records if "cause" in record]
    prediction = _join(items)
    units = _time_units(items, options)
    source_length_ms = _source_length_ms(log_path, records[0], borders)
    reference = options.reference(position)
    with records[-1].checking():
        return Instance(
            name=records[0].text("file"),
            unit=options.unit,
            source_length_ms=source_length_ms,
            delays_ms=snap_to_end([unit.delay_ms for unit in units], source_length_ms),
            elapsed_ms={clock: tuple(unit.elapsed_ms for unit in units)} if clock else {},
            prediction=prediction,
            reference=reference,
            reference_units=options.reference_units(reference),
            source_ends_ms=tuple(unit.source_end_ms for unit in units),
            utterances=tuple(_cut_utterance(border, units, clock, options) for border in borders),
        )


def _join(items: Sequence[Record]) -> str:
    text = "".join(
        f" {item.text('text')}" if item.fields.get("starts_word") else item.text("text")
        for item in items
    )
    return text.strip()


def _time_units(items: Sequence[Record], options: ReadingOptions) -> list[_TimedUnit]:
    units: list[_TimedUnit] = []
    for item in items:
        count = len(split_text(item.text("text"), options.unit))
        # A later piece of the word before completes it: the word has been released only now.
        if options.unit == "word" and units and not item.fields.get("starts_word"):
            units.pop()
        units.extend(
            [
                _TimedUnit(
                    int(item.number("utterance")),
                    item.number("delay_ms"),
                    item.number("elapsed_ms"),
                    item.number("source_end_ms"),
                )
            ]
            * count
        )
    return units


def _cut_utterance(
    border: Record,
    units: Sequence[_TimedUnit],
    clock: ElapsedClock | None,
    options: ReadingOptions,
) -> Instance:
    number = int(border.number("utterance"))
    start_ms, end_ms = border.number("source_start_ms"), border.number("source_end_ms")
    own = [unit for unit in units if unit.utterance == number]
    delays_ms = [unit.delay_ms - start_ms for unit in own]
    return Instance(
        name=f"{border.text('file')}, utterance {number}",
        unit=options.unit,
        source_length_ms=end_ms - start_ms,
        delays_ms=snap_to_end(delays_ms, end_ms - start_ms),
        elapsed_ms={clock: tuple(unit.elapsed_ms - start_ms for unit in own)} if clock else {},
    )


def _source_length_ms(log_path: Path, record: Record, borders: Sequence[Record]) -> float:
    """Return a recording's length: its file's, else the end of the last utterance."""
    name = Path(record.text("file"))
    for recording in (name, log_path.parent / name, log_path.parent / name.name):
        if recording.is_file():
            # Only this format needs the library that reads recordings.
            from earvoice.client.audio_file import AudioFile  # noqa: PLC0415

            with AudioFile(recording) as audio:
                return audio.duration_ms
    if borders:
        return max(border.number("source_end_ms") for border in borders)
    raise LogError(
        record.place,
        f"file = {str(name)!r}: nobody knows how long it is, and no utterance ends in the log; "
        "keep it beside the log",
    )
