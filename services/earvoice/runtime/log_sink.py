"""Where log lines end: a descriptor whose reader may have died, stopped, or run out of disk."""

from __future__ import annotations

import os
import threading
from collections import deque

LIMIT_BYTES = 1024 * 1024
CLOSE_TIMEOUT_S = 1.0


class LogSink:
    """Writes lines in a thread of its own, so that no write ever holds up who logs.

    What comes while the descriptor takes nothing is kept up to the limit; past it, and where a
    write fails, lines are dropped and counted, and the count is written once lines pass again.
    """

    def __init__(self, descriptor: int, limit_bytes: int = LIMIT_BYTES) -> None:
        self._descriptor = descriptor
        self._limit_bytes = limit_bytes
        self._lines: deque[tuple[bytes, int]] = deque()
        self._held_bytes = 0
        self._untold_count = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()
        self.dropped_count = 0

    def write(self, line: str) -> None:
        """Take a line, which ends without a line break; never waits."""
        encoded = line.encode("utf8", errors="backslashreplace") + b"\n"
        with self._changed:
            if self._closed or self._held_bytes + len(encoded) > self._limit_bytes:
                self.dropped_count += 1
                self._untold_count += 1
                return
            if self._untold_count:
                encoded = b"... %d log lines were dropped\n" % self._untold_count + encoded
            self._lines.append((encoded, 1 + self._untold_count))
            self._untold_count = 0
            self._held_bytes += len(encoded)
            self._changed.notify()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Take no more, and wait a little for what is left to be written."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (lines := self._next()) is not None:
            written_count = self._write_out(lines)
            with self._changed:
                self._held_bytes -= sum(len(line) for line, _ in lines)
                self.dropped_count += len(lines) - written_count
                self._untold_count += sum(told for _, told in lines[written_count:])

    def _next(self) -> list[tuple[bytes, int]] | None:
        """Wait for lines, each with how many it tells of; None when no more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closed)
            if not self._lines:
                return None
            lines = list(self._lines)
            self._lines.clear()
            return lines

    def _write_out(self, lines: list[tuple[bytes, int]]) -> int:
        for count, (line, _) in enumerate(lines):
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]  # noqa: PLW2901 - the rest
            except OSError:
                # The disk is full or the reader has gone: later lines may pass again.
                return count
        return len(lines)
