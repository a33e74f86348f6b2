"""Structured logs: one JSON object a line on standard error, never audio, never text."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from earvoice.runtime.authentication import current_tenant
from earvoice.runtime.errors import find_error

LOGGED_ID_CHARACTERS = 128
"""Of a caller's session id."""

SINK_LIMIT_BYTES = 1024 * 1024
SINK_CLOSE_TIMEOUT_S = 1.0

_STANDARD_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """Writes a record with its extra fields, the service and, in a call, its tenant, as JSON."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "service": self._service,
            "message": record.getMessage(),
        }
        # Lines are formatted where they are logged: in a call, by the task that serves it.
        if tenant := current_tenant():
            line["tenant"] = tenant
        line |= {k: v for k, v in record.__dict__.items() if k not in _STANDARD_ATTRIBUTES}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class LogSink:
    """Writes lines to a descriptor whose reader may have died, stopped, or run out of disk.

    A thread of its own writes, so that logging never blocks its caller. Lines that the descriptor
    does not take yet are kept up to the limit; past it, and where a write fails, lines are dropped
    and counted, and the count is written once lines pass again.
    """

    def __init__(self, descriptor: int, limit_bytes: int = SINK_LIMIT_BYTES) -> None:
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
        """Take a line, given without its line break; never waits."""
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

    def close(self, timeout_s: float = SINK_CLOSE_TIMEOUT_S) -> None:
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
        """Wait for lines, each with how many it accounts for; None when no more will come."""
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


class _SinkHandler(logging.Handler):
    def __init__(self, sink: LogSink) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._sink.write(self.format(record))
        except Exception:  # noqa: BLE001 - as logging's own handlers do
            self.handleError(record)

    def close(self) -> None:
        self._sink.close()
        super().close()


def configure_logging(service: str, level: str) -> None:
    """Send this process's logs, from a level such as ``INFO`` on, to standard error."""
    handler = _SinkHandler(LogSink(sys.stderr.fileno()))
    handler.setFormatter(JsonFormatter(service))
    logging.basicConfig(level=level, handlers=[handler], force=True)


@contextmanager
def session_log(
    logger: logging.Logger, describe: Callable[[str], Mapping[str, object]]
) -> Iterator[None]:
    """Write one line when a session ends, however it ends.

    Args:
        describe: given the final status, returns the line's other fields, among them
            ``session_id`` and ``trace_id``.
    """
    began_s, status = time.monotonic(), "OK"
    try:
        yield
    except BaseException as error:
        status = session_status(error)
        raise
    finally:
        facts = dict(describe(status))
        facts["session_id"] = str(facts["session_id"])[:LOGGED_ID_CHARACTERS]
        duration_s = round(time.monotonic() - began_s, 3)
        logger.info("session ended", extra={**facts, "status": status, "duration_s": duration_s})


def session_status(error: BaseException) -> str:
    """Return an error's reason, `CANCELLED` where the caller left, `INTERNAL` for a bug."""
    ours = find_error(error)
    if ours is not None:
        return ours.reason
    return "INTERNAL" if isinstance(error, Exception) else "CANCELLED"


def trace_id_of(traceparent: str) -> str:
    """Return the trace id (32 hex digits) of a W3C traceparent, or an empty string."""
    parts = traceparent.split("-")
    well_formed = len(parts) >= 4 and len(parts[1]) == 32  # noqa: PLR2004 - W3C Trace Context 3.2
    return parts[1] if well_formed else ""
