"""Exporting never holds anybody up, and what is lost is counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from earvoice.telemetry.export_losses import ExportLosses
from earvoice.telemetry.exporting import SpanQueue
from tests.unit.telemetry.made_span import made_spans


class KeepingExporter(SpanExporter):
    """Keeps what it is given, once it is let to."""

    def __init__(self, *, stalls: bool = False) -> None:
        self.spans: list[ReadableSpan] = []
        self.asked = threading.Event()
        self.free = threading.Event()
        if not stalls:
            self.free.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Waits while it stalls."""
        self.asked.set()
        self.free.wait()
        self.spans += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Gives up."""
        self.free.set()


class FailingExporter(SpanExporter):
    """Fails, in the way it was told to."""

    def __init__(self, *, raises: bool) -> None:
        self._raises = raises

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Never takes anything."""
        if self._raises:
            raise OSError("no space left on device")
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Nothing to do."""


def test_what_is_put_in_is_exported_in_order():
    """Closing sends the rest."""
    exporter, losses = KeepingExporter(), ExportLosses()
    queue = SpanQueue(exporter, losses)
    spans = made_spans(1300)
    queue.put(spans[:700])
    queue.put(spans[700:])
    queue.close()
    assert exporter.spans == spans
    assert not losses.dropped


def test_a_stalled_exporter_holds_nobody_up():
    """What does not fit into the queue is counted at once, and the rest goes out later."""
    exporter, losses = KeepingExporter(stalls=True), ExportLosses()
    queue = SpanQueue(exporter, losses, capacity_spans=600)
    queue.put(made_spans(600))
    assert exporter.asked.wait(10)
    queue.put(made_spans(1000))
    taken = 512 + 600
    assert losses.dropped["traces"] == 1600 - taken
    exporter.free.set()
    queue.close()
    assert len(exporter.spans) == taken


@pytest.mark.parametrize("raises", [True, False])
def test_failures_are_counted_and_logged_once(raises: bool, caplog: pytest.LogCaptureFixture):
    """A collector that is down for a day fills no log."""
    losses = ExportLosses()
    queue = SpanQueue(FailingExporter(raises=raises), losses)
    with caplog.at_level(logging.INFO, "earvoice.telemetry"):
        queue.put(made_spans(2000))
        queue.close()
    assert losses.dropped["traces"] == 2000
    assert [record.getMessage() for record in caplog.records] == ["telemetry is lost"]


def test_the_end_of_an_outage_is_logged_with_its_losses(caplog: pytest.LogCaptureFixture):
    """And the next outage begins with a line of its own."""
    losses = ExportLosses()
    with caplog.at_level(logging.INFO, "earvoice.telemetry"):
        for _ in range(2):
            losses.lose("traces", 3, "down")
            losses.lose("traces", 2, "down")
            losses.recover("traces")
            losses.recover("traces")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"] * 2
    assert caplog.records[-1].dropped == 10
