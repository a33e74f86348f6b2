"""What a log of translations is to the scorer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from earvoice.evaluation.clock import ElapsedClock
from earvoice.evaluation.instance import (
    Instance,
    InvalidInstanceError,
    Unit,
    count_units,
    snap_to_end,
)
from earvoice.runtime.parameter import Parameter, ParameterError


class LogError(Exception):
    """A log that cannot be read."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}")


@dataclass(frozen=True)
class ReadingOptions:
    """What the person who scores knows of a log, and how to count.

    Attributes:
        compatible: count references as SimulEval does (see ``count_units``).
        elapsed_clock: clock of the log's computation-aware times, for logs that do not say it.
    """

    unit: Unit = "word"
    compatible: bool = False
    references: tuple[str, ...] | None = None
    elapsed_clock: ElapsedClock | None = None

    def reference(self, position: int, logged: str | None = None) -> str | None:
        """Return an instance's reference: the one given, else the log's; None if it is empty."""
        text = logged if self.references is None else self.references[position]
        return text if text and text.strip() else None

    def instance(
        self,
        place: str,
        prediction: str,
        source_length_ms: float,
        delays_ms: Sequence[float],
        reference: str | None,
        **facts: Any,
    ) -> Instance:
        """Return an instance with what else is known of it; its name is the place by default."""
        units = None
        if reference is not None:
            units = count_units(reference, self.unit, compatible=self.compatible)
        delays_ms = snap_to_end(delays_ms, source_length_ms)
        facts = {"name": place, "prediction": prediction, "reference_units": units, **facts}
        try:
            return Instance(
                unit=self.unit,
                source_length_ms=source_length_ms,
                delays_ms=delays_ms,
                reference=reference,
                **facts,
            )
        except InvalidInstanceError as error:
            raise LogError(place, str(error)) from error

    def utterance(
        self,
        place: str,
        name: str,
        borders_ms: tuple[float, float],
        delays_ms: Sequence[float],
        elapsed_ms: Mapping[ElapsedClock, Sequence[float]],
    ) -> Instance:
        """Return an utterance, between borders in the recording, timed from its own start."""
        start_ms, end_ms = borders_ms
        elapsed_ms = {
            clock: tuple(e - start_ms for e in times_ms) for clock, times_ms in elapsed_ms.items()
        }
        delays_ms = [d - start_ms for d in delays_ms]
        length_ms = end_ms - start_ms
        return self.instance(
            place, "", length_ms, delays_ms, None, name=name, elapsed_ms=elapsed_ms
        )

    def check_references(self, path: Path, instance_count: int) -> None:
        if self.references is not None and len(self.references) != instance_count:
            raise LogError(
                str(path),
                f"{len(self.references)} references were given for {instance_count} instances",
            )


@dataclass(frozen=True)
class Log:
    """A log that was read.

    Attributes:
        word_rule: when a word counts as released in it.
        ends_with_eos: the end of sentence is a unit (SimulEval 1.0).
    """

    format_name: str
    instances: tuple[Instance, ...]
    word_rule: str
    notes: tuple[str, ...] = ()
    ends_with_eos: bool = False


@dataclass(frozen=True)
class Record:
    """A JSON object; every reader of a field raises LogError where the field is something else."""

    place: str
    fields: dict[str, Any]

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def number(self, name: str) -> float:
        return float(self._value(name, float))

    def numbers(self, name: str) -> tuple[float, ...]:
        return tuple(map(float, self._items(name, float)))

    def integer(self, name: str) -> int:
        return int(self._value(name, int))

    def integers(self, name: str) -> tuple[int, ...]:
        return tuple(self._items(name, int))

    def lists_of_integers(self, name: str) -> tuple[tuple[int, ...], ...]:
        return tuple(Record(self.place, {name: it}).integers(name) for it in self._items(name))

    def pairs(self, name: str) -> list[tuple[float, float]]:
        pairs = [Record(self.place, {name: it}).numbers(name) for it in self._items(name)]
        for pair in pairs:
            if len(pair) != 2:  # noqa: PLR2004 - a pair
                raise LogError(self.place, f"{name} = {pair}: must be pairs of numbers")
        return [(first, second) for first, second in pairs]

    def text(self, name: str) -> str:
        return str(self._value(name, str))

    def texts(self, name: str) -> list[str]:
        return self._items(name, str)

    def optional_text(self, name: str) -> str | None:
        return None if self.fields.get(name) is None else self.text(name)

    def record(self, name: str) -> Record:
        return Record(self.place, self._value(name, dict))

    def records(self, name: str) -> list[Record]:
        return [Record(self.place, value) for value in self._items(name, dict)]

    def _value(self, name: str, kind: type) -> Any:
        if name not in self.fields:
            raise LogError(self.place, f"{name} is missing")
        self._check(name, self.fields[name], kind)
        return self.fields[name]

    def _items(self, name: str, kind: type = object) -> list[Any]:
        values: list[Any] = self._value(name, list)
        for value in values:
            self._check(name, value, kind)
        return values

    def _check(self, name: str, value: object, kind: type) -> None:
        try:
            Parameter(name, kind, MISSING).check(value)
        except ParameterError as error:
            raise LogError(self.place, str(error)) from None


def read_lines(path: Path) -> list[tuple[str, str]]:
    """Return the lines that are not blank, each with its place."""
    try:
        lines = path.read_text(encoding="utf8").split("\n")
    except UnicodeDecodeError as error:
        raise LogError(str(path), f"is no UTF-8 text: {error}") from error
    found = [
        (f"{path}:{number}", line) for number, line in enumerate(lines, start=1) if line.strip()
    ]
    if not found:
        raise LogError(str(path), "is empty")
    return found


def parse_line(place: str, line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise LogError(place, f"is no JSON: {error}") from error


def read_records(path: Path) -> list[Record]:
    """Return the objects of a file of JSON lines; blank lines are skipped."""
    return [_as_record(place, parse_line(place, line)) for place, line in read_lines(path)]


def parse_object(place: str, content: bytes) -> Record:
    try:
        value = json.loads(content)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise LogError(place, f"is no JSON: {error}") from error
    return _as_record(place, value)


def _as_record(place: str, value: object) -> Record:
    if not isinstance(value, dict):
        raise LogError(place, "must be a JSON object")
    return Record(place, value)
