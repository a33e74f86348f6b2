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

    def _as_number(self, name: str, value: object) -> float:
        # JSON's true is no number, whatever Python says.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise LogError(self.place, f"{name} = {value!r}: must be a number")
        return float(value)


def read_records(path: Path) -> list[Record]:
    """Return the objects of a file of JSON lines; blank lines are skipped.

    Raises:
        LogError: it is empty, no text, or a line is no JSON object.
        OSError: it cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf8").split("\n")
    except UnicodeDecodeError as error:
        raise LogError(str(path), f"is no UTF-8 text: {error}") from error
    records = [
        _parse(f"{path}:{number}", line)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not records:
        raise LogError(str(path), "is empty")
    return records


def _parse(place: str, line: str) -> Record:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise LogError(place, f"is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise LogError(place, "must be a JSON object")
    return Record(place, value)
