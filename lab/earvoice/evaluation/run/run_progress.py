"""How far a test set is."""

from __future__ import annotations

import sys
from typing import TextIO

_MS_PER_MINUTE = 60_000
# Without a terminal: so many lines for a whole test set, or a log would fill with them.
_LINES = 10


class RunProgress:
    """A line that counts up on a terminal; elsewhere a line for each tenth.

    Args:
        output: where to.
        name: of the run.
        total: recordings of the test set.
        finished: of them, those of a run before.
        on_terminal: whether a line can be written over.
    """

    def __init__(
        self, output: TextIO, name: str, total: int, finished: int, *, on_terminal: bool
    ) -> None:
        self._output = output
        self._name = name
        self._total = total
        self._finished = finished
        self._failed = 0
        self._audio_ms = 0.0
        self._on_terminal = on_terminal
        self._shown = ""

    @classmethod
    def on_stderr(cls, name: str, total: int, finished: int) -> RunProgress:
        """Return one that tells people, who may or may not sit at a terminal."""
        return cls(sys.stderr, name, total, finished, on_terminal=sys.stderr.isatty())

    def count(self, audio_ms: float) -> None:
        """Count a recording that was translated."""
        self._finished += 1
        self._audio_ms += audio_ms
        if self._on_terminal:
            self._replace(self._line())
        elif self._finished * _LINES // self._total > (self._finished - 1) * _LINES // self._total:
            self._output.write(f"{self._line()}\n")
            self._output.flush()

    def fail(self, message: str) -> None:
        """Tell of a recording that was not translated."""
        self._failed += 1
        self.close()
        self._output.write(f"{message}\n")
        self._output.flush()

    def close(self) -> None:
        """Erase the line."""
        if self._shown:
            self._replace("")
            self._output.write("\r")
            self._output.flush()

    def _line(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        return (
            f"{self._name}: {self._finished} of {self._total} recordings{failed}, "
            f"{self._audio_ms / _MS_PER_MINUTE:.1f} min of audio"
        )

    def _replace(self, line: str) -> None:
        self._output.write(f"\r{line.ljust(len(self._shown))}")
        self._output.flush()
        self._shown = line
