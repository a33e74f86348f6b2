"""Structured logs: one JSON object a line on standard error, never audio, never text."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_STANDARD_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """Writes a record with its extra fields as one JSON object.

    Args:
        service: name of the service, written in every line.
    """

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a line break."""
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


def configure_logging(service: str, level: str) -> None:
    """Send this process's logs to standard error.

    Args:
        service: name written in every line.
        level: least severe level written, such as ``INFO``.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service))
    logging.basicConfig(level=level, handlers=[handler], force=True)


def trace_id_of(traceparent: str) -> str:
    """Return the trace id (32 hex digits) of a W3C traceparent, or an empty string."""
    parts = traceparent.split("-")
    well_formed = len(parts) >= 4 and len(parts[1]) == 32  # noqa: PLR2004 - W3C Trace Context 3.2
    return parts[1] if well_formed else ""
