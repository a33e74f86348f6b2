"""What the policy service tells its operators, and what becomes of it when nobody listens."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from earvoice.runtime.errors import InvalidAudioError
from earvoice.telemetry.schema import METRICS, SPANS
from tests.deploy.tool import free_port
from tests.e2e.calling import (
    Outcome,
    Request,
    audio_messages,
    call,
    config,
    open_stream,
    pieces,
)
from tests.integration.policy.collector import Collector, serve_collector
from tests.integration.policy.conftest import RunningPolicy, Start
from tests.integration.policy.metrics_page import read_values
from tests.integration.policy.scripted_backends import RATE_HERTZ

WORDS = [f"w{n}" for n in range(13)]
SEGMENTS = 6
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
TYPES = {
    "string": lambda value: value.HasField("string_value"),
    "int": lambda value: value.HasField("int_value"),
    "double": lambda value: value.HasField("double_value"),
    "bool": lambda value: value.HasField("bool_value"),
}


def messages(**changes) -> list[Request]:
    audio = bytes(4 * RATE_HERTZ * 2)
    return [Request(config=config(**changes)), *(Request(audio=piece) for piece in pieces(audio))]


def attributes(span: Span) -> Mapping[str, object]:
    return {item.key: item.value for item in span.attributes}


def has_type(value, declared: str) -> bool:
    if declared.endswith("[]"):
        return all(TYPES[declared[:-2]](item) for item in value.array_value.values)
    return TYPES[declared](value)


async def close(running: RunningPolicy) -> None:
    """Send what waits; the collector answers meanwhile."""
    await asyncio.to_thread(running.telemetry.close)


async def test_every_segment_is_a_trace_linked_to_its_session(collector, start: Start):
    """With the calls, the decision and the words in it."""
    running = await start()
    outcome = await call(running.address, messages())
    await close(running)
    by_name = Counter(span.name for span in collector.spans)
    assert by_name["session"] == 1
    assert by_name["segment"] == by_name["encode"] == len(outcome.of("segment_done")) == SEGMENTS
    (session,) = [span for span in collector.spans if span.name == "session"]
    roots = {span.trace_id: span for span in collector.spans if span.name == "segment"}
    assert len(roots) == SEGMENTS
    for root in roots.values():
        assert not root.parent_span_id
        assert [link.span_id for link in root.links] == [session.span_id]
    for span in collector.spans:
        if span.name not in ("session", "segment"):
            assert span.parent_span_id == roots[span.trace_id].span_id
            assert span.start_time_unix_nano <= span.end_time_unix_nano
    released = [
        len(attributes(span)["earvoice.words.delay_ms"].array_value.values)
        for span in collector.spans
        if span.name == "emit"
    ]
    assert sum(released) == len(WORDS)


async def test_every_attribute_is_declared_with_its_type(collector, start: Start):
    """The schema is what the pages and the readers know."""
    running = await start()
    await call(running.address, messages(commit_unit="COMMIT_UNIT_TOKEN"))
    await close(running)
    declared = {span.name: {item.name: item.type for item in span.attributes} for span in SPANS}
    for span in collector.spans:
        for name, value in attributes(span).items():
            assert has_type(value, declared[span.name][name]), (span.name, name, value)


async def test_no_text_leaves_the_service(collector, start: Start):
    """Neither spans nor metrics have any word."""
    running = await start()
    await call(running.address, messages())
    await close(running)
    exported = "".join(map(str, [*collector.spans, *collector.metrics]))
    assert "delay_ms" in exported
    assert [word for word in WORDS if f'"{word}"' in exported] == []


async def test_a_sessions_trace_joins_its_callers(collector, start: Start):
    """Where that is sampled; else the ratio decides, here for nothing at all."""
    running = await start(trace_ratio=0.0)
    for flags in ("00", "01"):
        await call(running.address, messages(trace_context={"traceparent": CALLER + flags}))
    await close(running)
    (session,) = [span for span in collector.spans if span.name == "session"]
    assert session.trace_id.hex() == CALLER.split("-")[1]
    assert session.parent_span_id.hex() == CALLER.split("-")[2]
    assert Counter(span.name for span in collector.spans)["segment"] == SEGMENTS


async def failing_stream(running: RunningPolicy) -> Outcome:
    """The encoder fails in the second segment."""
    running.decoder.gate.clear()
    stream = asyncio.create_task(call(running.address, messages()))
    await running.decoder.asked.wait()
    running.encoder.failure = InvalidAudioError("not finite")
    running.decoder.gate.set()
    outcome = await stream
    assert outcome.reason == InvalidAudioError.reason
    await close(running)
    return outcome


async def test_an_error_leaves_a_span_of_a_session_that_is_not_traced(collector, start: Start):
    """And nothing else."""
    outcome = await failing_stream(await start(trace_ratio=0.0))
    (session,) = collector.spans
    assert session.name == "session"
    assert session.status.code == Status.STATUS_CODE_ERROR
    assert attributes(session)["error.type"].string_value == outcome.reason
    heard_ms = outcome.of("segment_done")[-1].end_sample * 1000 / RATE_HERTZ
    assert attributes(session)["earvoice.session.audio_ms"].double_value >= heard_ms > 0


async def test_a_segment_that_fails_ends_its_spans_with_the_error(collector, start: Start):
    """The one that was being worked on."""
    outcome = await failing_stream(await start())
    failed = {s.name: s for s in collector.spans if s.status.code == Status.STATUS_CODE_ERROR}
    assert set(failed) == {"session", "segment", "encode"}
    assert attributes(failed["segment"])["error.type"].string_value == outcome.reason


@pytest.mark.parametrize("busy", ["encoder", "decoder"])
async def test_a_caller_that_leaves_is_no_error(busy: str, collector, start: Start):
    """What was being worked on for it ends unfinished."""
    running = await start()
    servicer = running.encoder if busy == "encoder" else running.decoder
    async with open_stream(running.address) as stream:
        await stream.read_until("session_started")
        servicer.gate.clear()
        await stream.send(*audio_messages(bytes(2 * RATE_HERTZ)))
        async with asyncio.timeout(120):
            await servicer.asked.wait()
    await running.wait_until_idle()
    await close(running)
    by_name = {span.name: span for span in collector.spans}
    assert {"session", "segment", "encode"} <= set(by_name)
    assert ("decode" in by_name) == (busy == "decoder")
    assert attributes(by_name["session"])["earvoice.session.status"].string_value == "CANCELLED"
    assert all(span.status.code != Status.STATUS_CODE_ERROR for span in collector.spans)


async def test_exemplars_lead_from_the_metrics_to_segments(collector, start: Start):
    """Every trace that a histogram names is there."""
    running = await start()
    await call(running.address, messages())
    await close(running)
    traces = {span.trace_id for span in collector.spans if span.name == "segment"}
    metrics = [
        metric
        for request in collector.metrics
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    (lag,) = [metric for metric in metrics if metric.name == "earvoice.word.lag"]
    named = {e.trace_id for point in lag.histogram.data_points for e in point.exemplars}
    assert named
    assert named <= traces
    assert {metric.name for metric in metrics} <= {metric.name for metric in METRICS}


async def test_prometheus_reads_every_metric_of_the_service(start: Start):
    """Counted once each: words, segments, the session."""
    port = free_port()
    running = await start(metrics_port=port, session_limit=1)
    await call(running.address, messages())
    counts = await read_values(port)
    assert counts["earvoice_word_lag_milliseconds_count"] == len(WORDS)
    assert counts["earvoice_segment_computation_milliseconds_count"] == SEGMENTS
    assert counts["earvoice_session_real_time_factor_count"] == 1
    for metric in METRICS:
        if "policy" in metric.services and metric.instrument == "histogram":
            assert any(name.startswith(metric.name.replace(".", "_")) for name in counts)
    await close(running)


@pytest.mark.parametrize("trouble", ["dead", "stalled", "refusing"])
async def test_a_session_does_not_notice_a_collector_in_trouble(
    trouble: str, start: Start, monkeypatch, caplog
):
    """Same words, every span counted as lost, one line in the log a signal."""
    async with AsyncExitStack() as stack:
        collector = Collector(refuses=trouble == "refusing")
        endpoint = await stack.enter_async_context(serve_collector(collector))
        if trouble == "refusing":
            collector.gate.set()
        if trouble == "dead":
            with socket.socket() as unused:
                unused.bind(("127.0.0.1", 0))
                endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        running = await start()
        with caplog.at_level(logging.INFO, "earvoice.telemetry"):
            outcomes: list[Outcome] = [await call(running.address, messages()) for _ in range(3)]
            await close(running)
        assert [[item.text for item in outcome.items] for outcome in outcomes] == [WORDS] * 3
        dropped = running.telemetry.dropped
        assert dropped["traces"] > 3 * SEGMENTS
        assert not collector.spans
        lost = [r.signal for r in caplog.records if r.getMessage() == "telemetry is lost"]
        assert lost.count("traces") == 1
        assert len(lost) == len(set(lost))
