"""JSON objects of a log, a line each, with checked fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earvoice.evaluation.instance import InvalidInstanceError
from earvoice.evaluation.readers.log import LogError


@dataclass(frozen=True)
class Record:
    """One line.

    Attributes:
        place: file and line, for messages.
        fields: the object.
    """

    place: str
    fields: dict[str, Any]

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def number(self, name: str) -> float:
        """Return a number.

        Raises:
            LogError: there is none.
        """
        return self._as_number(name, self._field(name))

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a list of numbers.

        Raises:
            LogError: there is none.
        """
        return tuple(self._as_number(name, value) for value in self._list(name))

    def integer(self, name: str) -> int:
        """Return an integer.

        Raises:
            LogError: there is none.
        """
        return self._as_integer(name, self._field(name))

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of integers.

        Raises:
            LogError: there is none.
        """
        return tuple(self._as_integer(name, value) for value in self._list(name))

    def lists_of_integers(self, name: str) -> tuple[tuple[int, ...], ...]:
        """Return a list of lists of integers.

        Raises:
            LogError: there is none.
        """
        return tuple(Record(self.place, {name: value}).integers(name) for value in self._list(name))

    def pairs(self, name: str) -> list[tuple[float, float]]:
        """Return a list of pairs of numbers.

        Raises:
            LogError: there is none.
        """
        pairs: list[tuple[float, float]] = []
        for value in self._list(name):
            match value:
                case [first, second]:
                    pairs.append((self._as_number(name, first), self._as_number(name, second)))
                case _:
                    raise LogError(self.place, f"{name} has {value!r}: must be pairs of numbers")
        return pairs

    def text(self, name: str) -> str:
        """Return a text.

        Raises:
            LogError: there is none.
        """
        value = self._field(name)
        if not isinstance(value, str):
            raise LogError(self.place, f"{name} = {value!r}: must be a text")
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of texts.

        Raises:
            LogError: there is none.
        """
        values = self._list(name)
        for value in values:
            if not isinstance(value, str):
                raise LogError(self.place, f"{name} has {value!r}: must be texts")
        return values

    def optional_text(self, name: str) -> str | None:
        """Return a text; None if it is missing or null.

        Raises:
            LogError: it is something else.
        """
        return None if self.fields.get(name) is None else self.text(name)

    def record(self, name: str) -> Record:
        """Return an object.

        Raises:
            LogError: there is none.
        """
        value = self._field(name)
        if not isinstance(value, dict):
            raise LogError(self.place, f"{name} = {value!r}: must be an object")
        return Record(self.place, value)

    def records(self, name: str) -> list[Record]:
        """Return a list of objects.

        Raises:
            LogError: there is none.
        """
        values = self._list(name)
        for value in values:
            if not isinstance(value, dict):
                raise LogError(self.place, f"{name} has {value!r}: must be objects")
        return [Record(self.place, value) for value in values]

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Tell of impossible values by file and line.

        Raises:
            LogError: an instance made inside is invalid.
        """
        try:
            yield
        except InvalidInstanceError as error:
            raise LogError(self.place, str(error)) from error

    def _field(self, name: str) -> Any:
        if name not in self.fields:
            raise LogError(self.place, f"{name} is missing")
        return self.fields[name]

    def _list(self, name: str) -> list[Any]:
        value = self._field(name)
        if not isinstance(value, list):
            raise LogError(self.place, f"{name} = {value!r}: must be a list")
        return value

    def _as_integer(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise LogError(self.place, f"{name} = {value!r}: must be an integer")
        return value

    def _as_number(self, name: str, value: object) -> float:
        # JSON's true is no number, whatever Python says.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise LogError(self.place, f"{name} = {value!r}: must be a number")
        return float(value)


def read_lines(path: Path) -> list[tuple[str, str]]:
    """Return the lines that are not blank, each with its place.

    Raises:
        LogError: there are none, or it is no text.
        OSError: it cannot be read.
    """
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
    """Return the JSON value of a line.

    Raises:
        LogError: it is none.
    """
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise LogError(place, f"is no JSON: {error}") from error


def read_records(path: Path) -> list[Record]:
    """Return the objects of a file of JSON lines; blank lines are skipped.

    Raises:
        LogError: it is empty, no text, or a line is no JSON object.
        OSError: it cannot be read.
    """
    return [_as_record(place, parse_line(place, line)) for place, line in read_lines(path)]


def parse_object(place: str, content: bytes) -> Record:
    """Return the JSON object that a file holds.

    Raises:
        LogError: it holds something else.
    """
    try:
        value = json.loads(content)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise LogError(place, f"is no JSON: {error}") from error
    return _as_record(place, value)


def _as_record(place: str, value: object) -> Record:
    if not isinstance(value, dict):
        raise LogError(place, "must be a JSON object")
    return Record(place, value)
