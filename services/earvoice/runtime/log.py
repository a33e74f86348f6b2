"""Structured logs: one JSON object a line on standard error, never audio, never text."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from earvoice.runtime.errors import find_error
from earvoice.runtime.log_sink import LogSink

LOGGED_ID_CHARACTERS = 128
"""Of a caller's session id."""

_STANDARD_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """Writes a record with its extra fields, and the service's name, as one JSON object."""

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
        line |= {k: v for k, v in record.__dict__.items() if k not in _STANDARD_ATTRIBUTES}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _SinkHandler(logging.Handler):
    """Hands lines to a sink, which no full disk and no reader that stopped can hold up."""

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
        describe: given the status with which it ends, says what the line has beside it; among
            this ``session_id`` and ``trace_id``.
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
