"""How far a long translation is, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from earvoice.client.event import SegmentDone

if TYPE_CHECKING:
    from earvoice.client.event import TranslationEvent


class Progress:
    """A line that counts up and is erased at the end.

    Args:
        output: where to.
        name: of the source.
        duration_ms: its length; None when nobody knows.
        enabled: False writes nothing.
    """

    def __init__(
        self, output: TextIO, name: str, duration_ms: float | None, *, enabled: bool
    ) -> None:
        self._output = output
        self._name = name
        self._duration_ms = duration_ms
        self._enabled = enabled
        self._shown = ""

    def write(self, event: TranslationEvent) -> None:
        """Count up when a segment is done."""
        if not self._enabled or not isinstance(event, SegmentDone):
            return
        line = f"{self._name}: {event.end_ms / 1000:.1f} s"
        if self._duration_ms:
            share = min(event.end_ms / self._duration_ms, 1.0)
            line += f" of {self._duration_ms / 1000:.1f} s ({share:.0%})"
        self._replace(line)

    def close(self) -> None:
        """Erase the line."""
        if self._shown:
            self._replace("")
            self._output.write("\r")
            self._output.flush()

    def _replace(self, line: str) -> None:
        self._output.write(f"\r{line.ljust(len(self._shown))}")
        self._output.flush()
        self._shown = line
