"""The file of spans: OTLP/JSON as the standard has it, of bounded size."""

from __future__ import annotations

import base64
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from earvoice.telemetry.span_file import SpanFileExporter
from tests.unit.telemetry.made_span import made_spans

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


def test_a_service_started_again_goes_on_with_its_file(tmp_path: Path):
    """What an earlier process wrote stays."""
    path = tmp_path / "spans.jsonl"
    for _ in range(2):
        exporter = SpanFileExporter(path)
        exporter.export(made_spans())
        exporter.shutdown()
    assert len(path.read_text().splitlines()) == 2


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
