"""The services' log lines: passed on, and the last ones kept in case a service dies."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from pathlib import Path

from earvoice.runtime.log import LogSink

_TAIL_LINES = 20
_READ_BYTES = 64 * 1024
_LINE_LIMIT_BYTES = 256 * 1024


_ERROR = b'"level": "ERROR"'


class LogRelay:
    """Passes on one child's lines; without a sink it only keeps the last ones.

    Attributes:
        has_lost_errors: the child has logged an error that was not passed on.
    """

    def __init__(self, prefix: str = "", sink: LogSink | None = None) -> None:
        self._prefix = prefix
        self._sink = sink
        self.has_lost_errors = False
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)

    @property
    def tail(self) -> str:
        return "\n".join(self._tail)

    async def pump(self, source: asyncio.StreamReader) -> None:
        """Pass lines on until the source ends; never waits for their reader."""
        rest = b""
        while block := await source.read(_READ_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                self._pass_on(line)
            if len(rest) > _LINE_LIMIT_BYTES:
                self._pass_on(rest)
                rest = b""
        if rest:
            self._pass_on(rest)

    def _pass_on(self, line: bytes) -> None:
        text = line.decode("utf8", errors="replace")
        self._tail.append(text)
        if self._sink is not None:
            self._sink.write(f"{self._prefix}{text}")
        elif _ERROR in line:
            self.has_lost_errors = True


class ServiceLogs:
    """Where the services on this machine log to, and where news about them is printed.

    Args:
        shown: pass the services' lines to standard error, each after its service's name.
        folder: append them to ``NAME.log`` in this folder instead.
    """

    def __init__(self, *, shown: bool = False, folder: Path | None = None) -> None:
        self._shown = shown
        self._folder = folder
        self._console = LogSink(sys.stderr.fileno())
        self._files: dict[int, LogSink] = {}
        self._relays: list[LogRelay] = []

    @property
    def has_lost_errors(self) -> bool:
        return any(relay.has_lost_errors for relay in self._relays)

    def relay(self, name: str) -> LogRelay:
        self._relays.append(self._open_relay(name))
        return self._relays[-1]

    def _open_relay(self, name: str) -> LogRelay:
        if self._folder is None:
            return LogRelay(f"{name:8}| ", self._console if self._shown else None)
        self._folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(self._folder / f"{name}.log", flags, 0o666)
        self._files[descriptor] = LogSink(descriptor)
        return LogRelay("", self._files[descriptor])

    def tell(self, message: str) -> None:
        self._console.write(f"earvoice: {message}")

    def close(self) -> None:
        """Write what is left, as far as that is possible at once."""
        self._console.close()
        for sink in self._files.values():
            # The descriptor stays open for a write that hangs; it closes with this process.
            sink.close()
