"""What the gateway tells its operators: a span of each stream, and what it counts."""

from __future__ import annotations

import asyncio
import json

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from earvoice.gateway.door import Door
from earvoice.gateway.settings import GatewaySettings
from earvoice.runtime.errors import SessionLimitError
from earvoice.runtime.settings import SettingsError
from earvoice.telemetry.schema import METRICS, SPANS
from tests.deploy.tool import free_port
from tests.integration.client.scripted_service import ScriptedService, serve
from tests.integration.gateway.running_gateway import (
    of_kind,
    receive_all,
    run_gateway,
    speak,
    start,
)
from tests.integration.policy.metrics_page import read_values
from tests.integration.policy.test_telemetry import CALLER, attributes, has_type

CHUNK = b"\0\0" * 800


async def caption(address: str, content: str, **options) -> list[dict]:
    async with speak(address, **options) as websocket:
        await websocket.send(content)
        await websocket.send(CHUNK)
        await websocket.send(json.dumps({"type": "end"}))
        return await receive_all(websocket)


def parents(service: ScriptedService) -> set[str]:
    """The spans that the policy service was told of."""
    return {config.trace_context.traceparent for config in service.configs}


def name_of(span: Span) -> str:
    return f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"


async def test_the_sessions_of_a_stream_hang_on_its_span(collector):
    """One span a stream, under the caller's; all languages' sessions are under it."""
    service = ScriptedService([" Wort"])
    content = start(config={"targetLanguageCodes": ["de", "es"]})
    async with serve(service) as server, run_gateway(server) as (address, _):
        messages = await caption(
            address, content, additional_headers={"traceparent": CALLER + "01"}
        )
    (span,) = collector.spans
    assert (span.name, span.kind) == ("stream", Span.SPAN_KIND_SERVER)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == tuple(CALLER.split("-")[1:3])
    assert parents(service) == {name_of(span)}
    told = attributes(span)
    values = [value.string_value for value in told["earvoice.gateway.sessions"].array_value.values]
    assert sorted(values) == sorted(m["session_id"] for m in of_kind(messages, "started"))
    assert told["earvoice.session.status"].string_value == "OK"
    assert told["earvoice.session.words"].int_value == 2
    assert told["earvoice.gateway.longest_relay_ms"].double_value > 0
    (declared,) = [item for item in SPANS if item.name == "stream"]
    types = {item.name: item.type for item in declared.attributes}
    for name, value in told.items():
        assert has_type(value, types[name]), name


async def test_a_refusal_ends_the_span_with_its_reason(collector):
    """What the caller is told."""
    service = ScriptedService(failure=SessionLimitError("all taken", retry_after_ms=1500))
    async with serve(service) as server, run_gateway(server) as (address, _):
        await caption(address, start())
    (span,) = collector.spans
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert attributes(span)["error.type"].string_value == "SESSION_LIMIT"


async def test_a_service_that_is_not_there_ends_the_span_with_its_code(collector):
    """It has no reason of ours."""
    async with run_gateway("127.0.0.1:1") as (address, _):
        await caption(address, start())
    (span,) = collector.spans
    assert attributes(span)["error.type"].string_value == "UNAVAILABLE"
    assert attributes(span)["earvoice.session.status"].string_value == "UNAVAILABLE"


async def test_a_caller_that_goes_is_no_error(collector):
    """Pages are closed."""
    service = ScriptedService()
    async with serve(service) as server, run_gateway(server) as (address, door):
        async with speak(address) as websocket:
            await websocket.send(start())
            await websocket.recv()
        while door.speaker_count:
            await asyncio.sleep(0.01)
    (span,) = collector.spans
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert attributes(span)["earvoice.session.status"].string_value == "CANCELLED"


async def test_the_log_says_how_each_stream_ended(caplog):
    """As the policy service's does: few streams are traced."""
    caplog.set_level("INFO", "earvoice.gateway")
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, door):
        await caption(address, start(publish="hall"))
        async with speak(address) as websocket:
            await websocket.send(start())
            await websocket.recv()
        while door.speaker_count:
            await asyncio.sleep(0.01)
    service = ScriptedService(failure=SessionLimitError("all taken", retry_after_ms=1500))
    async with serve(service) as server, run_gateway(server) as (address, _):
        await caption(address, start())
    ended = [record for record in caplog.records if record.msg == "stream ended"]
    assert [record.status for record in ended] == ["OK", "CANCELLED", "SESSION_LIMIT"]
    assert [(record.stream, record.sessions) for record in ended] == [
        ("hall", ["s1"]),
        ("", ["s1"]),
        ("", []),
    ]


async def test_the_log_says_that_the_gateway_drains(caplog):
    """And whom it sends away after the grace."""
    caplog.set_level("INFO", "earvoice.gateway")
    async with (
        serve(ScriptedService()) as server,
        run_gateway(server, drain_grace_ms=1) as (address, door),
        speak(address) as websocket,
    ):
        await websocket.send(start())
        await websocket.recv()
        await door.drain()
    told = [(record.msg, record.connections) for record in caplog.records[:2]]
    assert told == [("draining", 1), ("connections still open after the grace", 1)]


async def test_what_is_not_traced_passes_its_callers_trace_on(collector):
    """It is the caller's to keep or not."""
    service = ScriptedService()
    content = start(config={"traceContext": {"traceparent": CALLER + "00"}})
    async with serve(service) as server, run_gateway(server, trace_ratio=0.0) as (address, _):
        await caption(address, content)
    assert collector.spans == []
    assert parents(service) == {CALLER + "00"}


async def test_prometheus_reads_every_metric_of_the_gateway():
    """While a stream runs, and a connection has been refused."""
    port = free_port()
    service = ScriptedService([" Wort"])
    settings = {"metrics_port": port, "max_sockets": 1}
    async with serve(service) as server, run_gateway(server, **settings) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start())
            await websocket.send(CHUNK)
            while json.loads(await websocket.recv())["type"] != "words":
                pass
            async with speak(address) as another:
                await receive_all(another)
            counts: dict[str, float] = {}
            # A word's relay is counted once it has been written.
            while "earvoice_gateway_relay_milliseconds_count" not in counts:
                counts = await read_values(port)
    values = {
        name: counts[f"earvoice_gateway_{name}"] for name in ("sockets", "speakers", "readers")
    }
    assert values == {"sockets": 1, "speakers": 1, "readers": 0}
    assert counts["earvoice_gateway_refused_total"] == 1
    assert counts["earvoice_gateway_relay_milliseconds_count"] == 1
    found = {name.removesuffix("_total") for name in counts}
    for metric in METRICS:
        if "gateway" in metric.services and metric.instrument != "histogram":
            name = metric.name.replace(".", "_")
            assert name in found or metric.name == "earvoice.telemetry.dropped"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"server_token": "s", "token_key": "k" * 32},
            "EARVOICE_GATEWAY_SERVER_TOKEN: .*SERVER_TLS_CA_FILE",
        ),
        ({"server": "host:99999"}, "EARVOICE_GATEWAY_SERVER: .*port 99999"),
    ],
)
async def test_what_cannot_be_called_is_told_at_the_start(settings, told):
    """By the setting's name: a token would leave the machine in the clear, a port is none."""
    with pytest.raises(SettingsError, match=told):
        Door(GatewaySettings(**{"server": "policy.example:50051", **settings}))


async def test_a_callers_token_is_not_shown_in_the_clear():
    """Refused with the setting that would help, and no fault of the gateway's."""
    async with run_gateway("policy.example:50051") as (address, _):
        message = start(access_token="secret")
        (error,) = await caption(address, message)
    assert error["reason"] == "UNAUTHENTICATED"
    assert "SERVER_TLS_CA_FILE" in error["message"]
