"""One finished span, as far as latency is concerned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from earvoice.latency.errors import SpanError

AttributeValue = str | bool | int | float | tuple["AttributeValue", ...]

PREFIX = "earvoice."


@dataclass(frozen=True, slots=True)
class Span:
    """A span.

    Attributes:
        name: as the telemetry page has it, like ``encoder.queue``.
        trace_id: 32 hex digits.
        start_ns: on the clock of the process that made it, to be compared with nothing but other
            spans of that process in the same trace.
        duration_ms: on the same clock.
        attributes: by their full names.
        failed: its status is an error.
    """

    name: str
    trace_id: str
    start_ns: int
    duration_ms: float
    attributes: Mapping[str, AttributeValue]
    failed: bool = False

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number of ours.

        Args:
            name: without the prefix ``earvoice.``.
            default: for an attribute that may be missing.

        Raises:
            SpanError: it is missing, or no number.
        """
        value = self.attributes.get(PREFIX + name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, value, "a number")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text of ours; raises like ``number``."""
        value = self.attributes.get(PREFIX + name, default)
        if not isinstance(value, str):
            raise self._wrong(name, value, "a text")
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a list of numbers of ours; raises like ``number``."""
        values = self._items(name)
        numbers = tuple(value for value in values if isinstance(value, int | float))
        if len(numbers) != len(values):
            raise self._wrong(name, values, "numbers")
        return numbers

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts of ours; empty if it is missing."""
        if PREFIX + name not in self.attributes:
            return ()
        return tuple(str(value) for value in self._items(name))

    def flags(self, name: str) -> tuple[bool, ...]:
        """Return a list of truth values of ours; raises like ``number``."""
        return tuple(bool(value) for value in self._items(name))

    def _items(self, name: str) -> tuple[AttributeValue, ...]:
        value = self.attributes.get(PREFIX + name)
        if not isinstance(value, tuple):
            raise self._wrong(name, value, "a list")
        return value

    def _wrong(self, name: str, value: object, allowed: str) -> SpanError:
        return SpanError(
            f"span {self.name} of trace {self.trace_id}",
            f"{PREFIX}{name} = {value!r}, must be {allowed}",
        )
