"""A log of translations as the scorer sees it, and the times of the spoken source words."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from earvoice.cli.command import CommandError, ExitCode
from earvoice.evaluation.instance import ElapsedClock, Instance, Unit, count_units, snap_to_end

PartT = TypeVar("PartT")


class LogError(CommandError):
    """A log that cannot be read."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}", ExitCode.INPUT)


@dataclass(frozen=True)
class ReadingOptions:
    """What the user knows about a log, and how to count.

    Attributes:
        compatible: count references as SimulEval does (see ``count_units``).
        elapsed_clock: clock of the log's computation-aware times, for logs that do not name it.
    """

    unit: Unit = "word"
    compatible: bool = False
    references: tuple[str, ...] | None = None
    elapsed_clock: ElapsedClock | None = None

    def reference(self, position: int, logged: str | None = None) -> str | None:
        """Return an instance's reference: the given one, else the log's; None if it is empty."""
        text = logged if self.references is None else self.references[position]
        return text if text and text.strip() else None

    def reference_units(self, reference: str | None) -> int | None:
        if reference is None:
            return None
        return count_units(reference, self.unit, compatible=self.compatible)

    def read_each(
        self, path: Path, parts: Sequence[PartT], read: Callable[[int, PartT], Instance]
    ) -> tuple[Instance, ...]:
        """Read each part with its position; requires as many references as parts."""
        if self.references is not None and len(self.references) != len(parts):
            raise LogError(
                str(path),
                f"{len(self.references)} references were given for {len(parts)} instances",
            )
        return tuple(read(position, part) for position, part in enumerate(parts))

    def instance(
        self,
        place: str,
        reference: str | None,
        source_length_ms: float,
        delays_ms: Sequence[float],
        **facts: Any,
    ) -> Instance:
        """Return an instance; ``facts`` are fields that are passed on unchanged."""
        try:
            return Instance(
                unit=self.unit,
                source_length_ms=source_length_ms,
                delays_ms=snap_to_end(delays_ms, source_length_ms),
                reference=reference,
                reference_units=self.reference_units(reference),
                **{"name": place, **facts},
            )
        except ValueError as error:
            raise LogError(place, str(error)) from error


@dataclass(frozen=True)
class Log:
    """A log that was read.

    Attributes:
        word_rule: when a word in it counts as released.
        ends_with_eos: whether the end of sentence is a unit (SimulEval 1.0).
    """

    format_name: str
    instances: tuple[Instance, ...]
    word_rule: str
    notes: tuple[str, ...] = ()
    ends_with_eos: bool = False
    source_word_ms: float | None = None
    """Duration of a word of a text source on its clock; None for speech."""


@dataclass(frozen=True)
class Record:
    """A JSON object; its readers raise LogError if a field is of another type."""

    place: str
    fields: dict[str, Any]

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def number(self, name: str) -> float:
        return float(self._value(name, "a number"))

    def numbers(self, name: str) -> tuple[float, ...]:
        return tuple(map(float, self._values(name, "a number")))

    def integer(self, name: str) -> int:
        return int(self._value(name, "an integer"))

    def integers(self, name: str) -> tuple[int, ...]:
        return tuple(self._values(name, "an integer"))

    def lists_of_integers(self, name: str) -> tuple[tuple[int, ...], ...]:
        lists = self._values(name, "a list")
        return tuple(Record(self.place, {name: value}).integers(name) for value in lists)

    def pairs(self, name: str) -> list[tuple[float, float]]:
        pairs = self._values(name, "pairs of numbers")
        return [(float(first), float(second)) for first, second in pairs]

    def text(self, name: str) -> str:
        return str(self._value(name, "a text"))

    def texts(self, name: str) -> list[str]:
        return self._values(name, "a text")

    def optional_text(self, name: str) -> str | None:
        return None if self.fields.get(name) is None else self.text(name)

    def record(self, name: str) -> Record:
        return Record(self.place, self._value(name, "an object"))

    def records(self, name: str) -> list[Record]:
        return [Record(self.place, value) for value in self._values(name, "an object")]

    def _value(self, name: str, kind: str) -> Any:
        if name not in self.fields:
            raise LogError(self.place, f"{name} is missing")
        return self._checked(name, self.fields[name], kind)

    def _values(self, name: str, kind: str) -> list[Any]:
        return [self._checked(name, value, kind) for value in self._value(name, "a list")]

    def _checked(self, name: str, value: Any, kind: str) -> Any:
        if not _IS_OF_KIND[kind](value):
            raise LogError(self.place, f"{name} = {value!r}: must be {kind}")
        return value


def _is_number(value: object) -> bool:
    # JSON's true is not a number, although Python's bool is an int.
    return isinstance(value, int | float) and not isinstance(value, bool)


_IS_OF_KIND: dict[str, Callable[[Any], bool]] = {
    "a number": _is_number,
    "an integer": lambda value: _is_number(value) and isinstance(value, int),
    "pairs of numbers": lambda value: (
        isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))  # noqa: PLR2004 - a pair
    ),
    "a text": lambda value: isinstance(value, str),
    "a list": lambda value: isinstance(value, list),
    "an object": lambda value: isinstance(value, dict),
}


def read_lines(path: Path) -> tuple[str, ...]:
    """Return the lines of a text; a trailing newline does not begin another line."""
    try:
        lines = path.read_text(encoding="utf8").split("\n")
    except OSError as error:
        raise LogError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LogError(str(path), f"is not UTF-8 text: {error}") from error
    lines = [line.removesuffix("\r") for line in lines]
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise LogError(str(path), "is empty")
    return tuple(lines)


def _read_objects(path: Path) -> Iterator[tuple[str, Any]]:
    """Read what each line holds that is not blank, with its place."""
    lines = read_lines(path)
    if not any(map(str.strip, lines)):
        raise LogError(str(path), "is empty")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            place = f"{path}:{number}"
            yield place, parse_line(place, line)


def parse_line(place: str, line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise LogError(place, f"is not JSON: {error}") from error


def read_records(path: Path) -> list[Record]:
    """Return the objects of a file of JSON lines; blank lines are skipped."""
    return [_as_record(place, content) for place, content in _read_objects(path)]


def parse_object(place: str, content: bytes) -> Record:
    try:
        value = json.loads(content)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise LogError(place, f"is not JSON: {error}") from error
    return _as_record(place, value)


def _as_record(place: str, value: object) -> Record:
    if not isinstance(value, dict):
        raise LogError(place, "must be a JSON object")
    return Record(place, value)


_SPOKEN_RULE = (
    "spoken lag: release - end of the word that was spoken where the unit's attended audio ends; "
    "between two words, the one before"
)


@dataclass(frozen=True)
class SpokenWord:
    """A word of the source, with its position in the recording in ms, as in synthesised sets.

    A unit is taken to translate the word spoken at the end of the audio that it attends to: the
    model determines which word, the test set when that word ended.
    """

    word: str
    start_ms: float
    end_ms: float


def read_spoken_words(path: Path) -> list[tuple[SpokenWord, ...]]:
    """Return the words of each recording, in order of time."""
    return [_read_words(place, content) for place, content in _read_objects(path)]


def place_spoken_words(log: Log, words: Sequence[Sequence[SpokenWord]]) -> Log:
    """Return a log whose units have the end of the source word that they attend to."""
    if len(words) != len(log.instances):
        raise LogError(
            "words", f"{len(words)} lists were given for {len(log.instances)} recordings"
        )
    instances = tuple(map(_place, log.instances, words))
    return replace(log, instances=instances, notes=(*log.notes, _SPOKEN_RULE))


def word_at(position_ms: float, words: Sequence[SpokenWord]) -> SpokenWord:
    """Return the last word that began before a position; the first where none has."""
    began = bisect_left([word.start_ms for word in words], position_ms)
    return words[max(began - 1, 0)]


def _place(instance: Instance, words: Sequence[SpokenWord]) -> Instance:
    if instance.source_ends_ms is None:
        raise LogError(instance.name, "the log does not say what audio each unit attends to")
    if not words:
        return instance
    ends_ms = tuple(word_at(end_ms, words).end_ms for end_ms in instance.source_ends_ms)
    return replace(instance, spoken_ends_ms=ends_ms)


def _read_words(place: str, value: object) -> tuple[SpokenWord, ...]:
    if not isinstance(value, list):
        raise LogError(place, "must be a list of words")
    words: list[SpokenWord] = []
    for entry in value:
        if not isinstance(entry, dict):
            raise LogError(place, f"has {entry!r}: must be objects with word, start_ms and end_ms")
        record = Record(place, entry)
        word = SpokenWord(record.text("word"), record.number("start_ms"), record.number("end_ms"))
        if words and word.start_ms < words[-1].start_ms:
            raise LogError(place, f"{word.word!r} starts before the word before it")
        words.append(word)
    return tuple(words)
