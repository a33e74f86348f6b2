"""A child's log lines: passed on, and the last ones kept for the case that it dies."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

_TAIL_LINES = 20
_READ_BYTES = 64 * 1024


class LogRelay:
    """Passes on one child's lines.

    Args:
        prefix: written before every line.
        output: where they go; None keeps only the last ones.
    """

    def __init__(self, prefix: str = "", output: TextIO | None = None) -> None:
        self._prefix = prefix
        self._output = output
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)

    @property
    def tail(self) -> str:
        """The last lines."""
        return "\n".join(self._tail)

    async def pump(self, source: asyncio.StreamReader) -> None:
        """Pass lines on until the source ends."""
        rest = b""
        while block := await source.read(_READ_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                self._pass_on(line)
        if rest:
            self._pass_on(rest)

    def _pass_on(self, line: bytes) -> None:
        text = line.decode("utf8", errors="replace")
        self._tail.append(text)
        if self._output is not None:
            self._output.write(f"{self._prefix}{text}\n")
            self._output.flush()


class LogFolder:
    """Where children log to: prefixed lines on a stream, a file each, or nowhere.

    Args:
        output: a stream that all share; None for no stream.
        folder: a folder that gets ``NAME.log`` for each, appended to; None for no files. It
            outranks ``output``.
    """

    def __init__(self, output: TextIO | None = None, folder: Path | None = None) -> None:
        self._output = output
        self._folder = folder
        self._files: list[TextIO] = []

    def relay(self, name: str) -> LogRelay:
        """Return the relay of one child."""
        if self._folder is None:
            return LogRelay(f"{name:8}| ", self._output)
        self._folder.mkdir(parents=True, exist_ok=True)
        file = (self._folder / f"{name}.log").open("a", encoding="utf8")
        self._files.append(file)
        return LogRelay("", file)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
