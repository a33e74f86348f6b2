"""What of the telemetry is lost on its way."""

from __future__ import annotations

import logging
import threading
from collections import Counter

CLOSE_TIMEOUT_S = 2.0
"""What waits when a service stops may take so long to go out."""

_LOG = logging.getLogger("earvoice.telemetry")


class ExportLosses:
    """Counts what could not be exported; logs when it begins and when it is over, not each time.

    Attributes:
        dropped: things lost, by signal (`traces`, `metrics`).
    """

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        self._failing: set[str] = set()
        self._lock = threading.Lock()

    def lose(self, signal: str, count: int, reason: str) -> None:
        """Count things that are lost."""
        with self._lock:
            self.dropped[signal] += count
            begins = signal not in self._failing
            self._failing.add(signal)
        if begins:
            _LOG.warning("telemetry is lost", extra={"signal": signal, "reason": reason})

    def recover(self, signal: str) -> None:
        """Hear that an export went well."""
        if signal not in self._failing:
            return
        with self._lock:
            self._failing.discard(signal)
        dropped = self.dropped[signal]
        _LOG.info("telemetry goes out again", extra={"signal": signal, "dropped": dropped})
