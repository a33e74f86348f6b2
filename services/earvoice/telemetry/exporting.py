"""Handing spans to an exporter without ever waiting for it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from earvoice.telemetry.export_losses import CLOSE_TIMEOUT_S, ExportLosses

QUEUE_SPANS = 8192
BATCH_SPANS = 512
INTERVAL_S = 5.0
"""As the SDK's own processor. A thread that wakes more often costs more than the spans do."""


class SpanQueue:
    """A bounded queue and the thread that empties it.

    The SDK's own batch processor drops the oldest span when full and counts nothing.

    Args:
        exporter: may block or fail as it likes.
        losses: counts the spans that come when the queue is full, and those of failed exports.
        capacity_spans: spans that may wait.
    """

    def __init__(
        self, exporter: SpanExporter, losses: ExportLosses, capacity_spans: int = QUEUE_SPANS
    ) -> None:
        self._exporter = exporter
        self._losses = losses
        self._capacity_spans = capacity_spans
        self._spans: deque[ReadableSpan] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="span-export", daemon=True)
        self._thread.start()

    def put(self, spans: Sequence[ReadableSpan]) -> None:
        """Take spans for export; what does not fit is lost. Never blocks; one thread calls it."""
        room = max(0, self._capacity_spans - len(self._spans))
        self._spans.extend(spans[:room])
        if len(spans) > room:
            self._losses.lose("traces", len(spans) - room, "the queue is full")
        if len(self._spans) >= BATCH_SPANS:
            self._wake.set()

    def close(self) -> None:
        """Export what waits, for two seconds at most."""
        self._closing = True
        self._wake.set()
        self._thread.join(CLOSE_TIMEOUT_S)
        self._exporter.shutdown()
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._spans:
            self._losses.lose("traces", len(self._spans), "the service stops")

    def _work(self) -> None:
        while not self._closing:
            self._wake.wait(INTERVAL_S)
            self._wake.clear()
            self._export_waiting()
        self._export_waiting()

    def _export_waiting(self) -> None:
        while self._spans:
            count = min(BATCH_SPANS, len(self._spans))
            self._export([self._spans.popleft() for _ in range(count)])

    def _export(self, batch: list[ReadableSpan]) -> None:
        try:
            result = self._exporter.export(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, no session may notice
            self._losses.lose("traces", len(batch), f"{type(error).__name__}: {error}")
            return
        if result is SpanExportResult.SUCCESS:
            self._losses.recover("traces")
        else:
            self._losses.lose("traces", len(batch), "the collector does not take them")
