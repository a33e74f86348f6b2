"""Spans are queued without waiting, and written to a file that stays readable."""

from __future__ import annotations

import base64
import json
import logging
import resource
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Link

from earvoice.runtime.settings import ProcessSettings
from earvoice.telemetry.service_telemetry import ExportLosses, ServiceTelemetry
from earvoice.telemetry.trace_context import new_child, new_root
from earvoice.telemetry.tracing import SpanBatch, SpanFileExporter, Tracer

SESSION = new_root()


def made_spans(count: int = 1) -> list[ReadableSpan]:
    """Children of one root, each with an attribute of every type, and a link."""
    root = new_root()
    batch = SpanBatch(Resource({"service.name": "tested"}), lambda: 0, lambda: 10**18)
    for index in range(count):
        attributes = {
            "text": "ä",
            "flag": True,
            "count": index,
            "time_ms": 1.5,
            "times_ms": [0.5, 2.0],
            "flags": [True, False],
            "names": ["a"],
        }
        batch.add("made", new_child(root), root, (1.0, 2.5), attributes, links=[Link(SESSION)])
    return batch.spans


RESOURCE = Resource({"service.name": "tested"})


class KeepingExporter(SpanExporter):
    """Keeps what it is given, once it is let to."""

    def __init__(self, *, stalls: bool = False) -> None:
        self.spans: list[ReadableSpan] = []
        self.asked = threading.Event()
        self.free = threading.Event()
        if not stalls:
            self.free.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if spans:
            self.asked.set()
            self.free.wait()
        self.spans += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.free.set()


class FailingExporter(SpanExporter):
    """Fails, in the way it was told to."""

    def __init__(self, *, raises: bool) -> None:
        self._raises = raises
        self.asked = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        if self._raises:
            raise OSError("no space left on device")
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Nothing to do."""


def test_what_is_put_in_is_exported_in_order():
    """Closing sends the rest."""
    exporter, losses = KeepingExporter(), ExportLosses()
    tracer = Tracer(RESOURCE, exporter, losses)
    spans = made_spans(1300)
    tracer.put(spans[:700])
    tracer.put(spans[700:])
    tracer.close()
    assert exporter.spans == spans
    assert not losses.dropped


def test_a_stalled_exporter_holds_nobody_up():
    """What does not fit into the queue is counted at once, and the rest goes out later."""
    exporter, losses = KeepingExporter(stalls=True), ExportLosses()
    tracer = Tracer(RESOURCE, exporter, losses, capacity_spans=600)
    tracer.put(made_spans(600))
    assert exporter.asked.wait(10)
    tracer.put(made_spans(1000))
    taken = 512 + 600
    assert losses.dropped["traces"] == 1600 - taken
    exporter.free.set()
    tracer.close()
    assert len(exporter.spans) == taken


@pytest.mark.parametrize("raises", [True, False])
def test_failures_are_counted_and_logged_once(raises: bool, caplog: pytest.LogCaptureFixture):
    """A collector that is down for a day fills no log."""
    losses = ExportLosses()
    tracer = Tracer(RESOURCE, FailingExporter(raises=raises), losses)
    with caplog.at_level(logging.INFO, "earvoice.telemetry"):
        tracer.put(made_spans(2000))
        tracer.close()
    assert losses.dropped["traces"] == 2000
    assert [record.getMessage() for record in caplog.records] == ["telemetry is lost"]


def test_a_wrong_address_is_told_before_there_is_a_span(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """With the setting that has it: that of the signal, where both are set."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://wrong:2")
    exporter, losses = FailingExporter(raises=False), ExportLosses()
    tracer = Tracer(RESOURCE, exporter, losses)
    assert exporter.asked.wait(10)
    tracer.close()
    losses.refuse("metrics", 1)
    assert [record.reason for record in caplog.records] == [
        "no collector takes them at OTEL_EXPORTER_OTLP_TRACES_ENDPOINT = http://wrong:2",
        "no collector takes them at OTEL_EXPORTER_OTLP_ENDPOINT = http://all:1",
    ]
    assert losses.dropped == {"traces": 0, "metrics": 1}


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


@given(st.floats(0, 1e7), st.floats(0, 3600), st.integers(0, 2 * 10**18))
def test_durations_do_not_depend_on_the_wall_clock(begin_s: float, duration_s: float, wall: int):
    """It is read once; what happens to it later moves no span."""
    batch = SpanBatch(RESOURCE, lambda: 5, lambda: wall)
    batch.add("made", new_root(), None, (begin_s, begin_s + duration_s), {})
    (span,) = batch.spans
    assert span.start_time is not None
    assert span.end_time is not None
    assert abs(span.end_time - span.start_time - duration_s * 1e9) < 10


IDS = ("traceId", "spanId", "parentSpanId")


def with_base64_ids(value):
    """As protobuf's JSON wants them, where OTLP/JSON has hex."""
    if isinstance(value, list):
        return [with_base64_ids(item) for item in value]
    if isinstance(value, dict):
        return {
            key: base64.b64encode(bytes.fromhex(item)).decode()
            if key in IDS
            else with_base64_ids(item)
            for key, item in value.items()
        }
    return value


def test_a_line_says_what_the_collector_would_be_sent(tmp_path: Path):
    """Read back by protobuf, it is the message that OpenTelemetry's own encoder makes."""
    spans = made_spans(3)
    exporter = SpanFileExporter(tmp_path / "spans.jsonl")
    exporter.export(spans)
    exporter.shutdown()
    (line,) = (tmp_path / "spans.jsonl").read_text(encoding="utf8").splitlines()
    read = json_format.ParseDict(with_base64_ids(json.loads(line)), TracesData())
    sent = TracesData(resource_spans=encode_spans(spans).resource_spans)
    for message in (read, sent):
        for span in message.resource_spans[0].scope_spans[0].spans:
            # We write the flags of W3C, the SDK only whether a parent is remote.
            span.flags = 0
            for link in span.links:
                link.flags = 0
    assert read == sent


def test_the_file_does_not_grow_without_end(tmp_path: Path):
    """Past its size it makes place for another, and the one before the last is dropped."""
    path = tmp_path / "folder" / "spans.jsonl"
    exporter = SpanFileExporter(path, max_bytes=10_000)
    for _ in range(50):
        exporter.export(made_spans(5))
    exporter.shutdown()
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["spans.jsonl", "spans.jsonl.1"]
    assert all(file.stat().st_size < 20_000 for file in files)
    assert all(json.loads(line) for file in files for line in file.read_text().splitlines())


def test_a_file_that_could_not_make_place_does_so_later(tmp_path: Path):
    """What was in the way, be it that no descriptor was left, may pass."""
    path, older = tmp_path / "spans.jsonl", tmp_path / "spans.jsonl.1"
    exporter = SpanFileExporter(path, max_bytes=1)
    exporter.export(made_spans(1))
    older.mkdir()
    with pytest.raises(IsADirectoryError):
        exporter.export(made_spans(1))
    older.rmdir()
    with no_more_descriptors(), pytest.raises(OSError, match="open files"):
        exporter.export(made_spans(1))
    exporter.export(made_spans(1))
    exporter.shutdown()
    assert [len(file.read_text().splitlines()) for file in (older, path)] == [1, 1]


def test_a_service_started_again_goes_on_with_its_file(tmp_path: Path):
    """What an earlier process wrote stays."""
    path = tmp_path / "spans.jsonl"
    for _ in range(2):
        exporter = SpanFileExporter(path)
        exporter.export(made_spans())
        exporter.shutdown()
    assert len(path.read_text().splitlines()) == 2


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """Only those that are open already."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def no_file_beyond(size_bytes: int) -> Iterator[None]:
    """Writes end there, in the middle of a line too, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path):
    """What does not fit is told; the lines before and after it can be read."""
    path = tmp_path / "spans.jsonl"
    exporter = SpanFileExporter(path)
    exporter.export(made_spans(1))
    size_bytes = path.stat().st_size
    with no_file_beyond(size_bytes + 10), pytest.raises(OSError, match="space"):
        exporter.export(made_spans(1))
    assert path.stat().st_size == size_bytes
    exporter.export(made_spans(1))
    exporter.shutdown()
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == 2


def test_a_full_disk_does_not_hinder_the_end():
    """Nothing waits to be written when the file closes."""
    exporter = SpanFileExporter(Path("/dev/full"))
    with pytest.raises(OSError, match="space"):
        exporter.export(made_spans(1))
    exporter.shutdown()


def test_a_file_that_cannot_be_written_is_told_by_its_setting(tmp_path):
    """The operator looks for a variable, not for a path."""
    (tmp_path / "file").touch()
    settings = ProcessSettings(trace_file=tmp_path / "file" / "spans.jsonl")
    with pytest.raises(OSError, match="TRACE_FILE: "):
        ServiceTelemetry("policy", settings)
