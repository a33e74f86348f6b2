"""OTLP/JSON lines and OTLP messages become spans."""

import json

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue

from earvoice.latency.span import Span, SpanError, read_span_file
from earvoice.latency.span_receiver import spans_of_message
from tests.unit.latency.traced import line, span, write_spans

TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_every_kind_of_value_is_read(tmp_path):
    """64-bit integers are texts in OTLP/JSON; an empty list may have no values."""
    written = span("emit", TRACE, 1.5, a=1, b=0.5, c=True, d="x", e=[1.0, 2.0], f=[])
    written["attributes"][-1]["value"] = {"arrayValue": {}}
    (read,) = read_span_file(write_spans(tmp_path / "spans.jsonl", [written]))
    assert (read.name, read.trace_id, read.duration_ms) == ("emit", TRACE, 1.5)
    expected = {"a": 1, "b": 0.5, "c": True, "d": "x", "e": (1.0, 2.0), "f": ()}
    assert read.attributes == {f"earvoice.{name}": value for name, value in expected.items()}
    assert not read.failed


def test_a_message_says_the_same_as_a_line(tmp_path):
    """What comes by gRPC is what the file has."""
    request = ExportTraceServiceRequest()
    message = request.resource_spans.add().scope_spans.add().spans.add()
    message.name, message.trace_id = "emit", bytes.fromhex(TRACE)
    message.start_time_unix_nano, message.end_time_unix_nano = 10, 1_500_010
    message.status.code = message.status.STATUS_CODE_ERROR
    values = {
        "a": AnyValue(int_value=1),
        "b": AnyValue(double_value=0.5),
        "c": AnyValue(bool_value=True),
        "d": AnyValue(string_value="x"),
        "e": AnyValue(array_value=ArrayValue(values=[AnyValue(double_value=1.0)])),
    }
    message.attributes.extend(KeyValue(key="earvoice." + k, value=v) for k, v in values.items())
    written = span("emit", TRACE, 1.5, failed=True, a=1, b=0.5, c=True, d="x", e=[1.0])
    written |= {"startTimeUnixNano": "10", "endTimeUnixNano": "1500010"}
    assert list(spans_of_message(request)) == list(
        read_span_file(write_spans(tmp_path / "spans.jsonl", [written]))
    )


def test_what_others_left_out_has_its_default():
    """An attribute without a value, a null in a list: other services' spans come by gRPC, too."""
    request = ExportTraceServiceRequest()
    message = request.resource_spans.add().scope_spans.add().spans.add()
    message.trace_id = bytes.fromhex(TRACE)
    message.attributes.add(key="bare")
    listed = ArrayValue(values=[AnyValue(), AnyValue(int_value=1)])
    message.attributes.append(KeyValue(key="list", value=AnyValue(array_value=listed)))
    (read,) = spans_of_message(request)
    assert (read.name, read.duration_ms) == ("", 0.0)
    assert read.attributes == {"bare": "", "list": ("", 1)}


def test_a_line_that_is_still_being_written_is_left(tmp_path):
    """A service may be running."""
    path = tmp_path / "spans.jsonl"
    whole = line([span("encode", TRACE, 1.0)])
    path.write_text(f"{whole}\n{whole[:40]}", encoding="utf8")
    assert len(list(read_span_file(path))) == 1


def test_lines_of_other_signals_are_passed_over(tmp_path):
    """A collector's file may hold metrics too."""
    path = tmp_path / "spans.jsonl"
    path.write_text('{"resourceMetrics": []}\n\n', encoding="utf8")
    assert list(read_span_file(path)) == []


@pytest.mark.parametrize(
    "broken",
    [
        "[]",
        "no json",
        "\udcff",
        "[" * 100_000,
        '"text"',
        '{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x"}]}]}]}',
    ],
)
def test_a_broken_line_is_named(tmp_path, broken):
    """File, line and what is wrong."""
    path = tmp_path / "spans.jsonl"
    path.write_text(
        f"{line([span('encode', TRACE, 1.0)])}\n{broken}\n",
        encoding="utf8",
        errors="surrogateescape",
    )
    with pytest.raises(SpanError, match=r"spans\.jsonl:2: no OTLP/JSON of spans"):
        list(read_span_file(path))


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda found: found.number("missing"), r"earvoice\.missing = None, must be a number"),
        (lambda found: found.number("flag"), r"earvoice\.flag = True, must be a number"),
        (lambda found: found.text("number"), r"earvoice\.number = 3, must be a text"),
        (lambda found: found.numbers("number"), r"earvoice\.number = 3, must be a list"),
        (lambda found: found.numbers("texts"), r"earvoice\.texts = \('a',\), must be numbers"),
    ],
)
def test_a_wrong_attribute_is_named(read, message):
    """With its span, its value and what it must be."""
    attributes = {"earvoice.flag": True, "earvoice.number": 3, "earvoice.texts": ("a",)}
    found = Span("emit", TRACE, 0, 1.0, attributes)
    with pytest.raises(SpanError, match=f"span emit of trace {TRACE}: {message}"):
        read(found)


def test_numbers_may_be_whole():
    """An exporter may write 3.0 as an integer."""
    assert Span("emit", TRACE, 0, 1.0, {"earvoice.a": (1, 2.5)}).numbers("a") == (1, 2.5)
    assert json.dumps(Span("emit", TRACE, 0, 1.0, {"earvoice.a": 3}).number("a")) == "3"
