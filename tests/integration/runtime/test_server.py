"""The chassis over real gRPC: statuses, health, slow readers, draining."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import encoder_service_pb2_grpc as pb_grpc
from earvoice.runtime.errors import InvalidFieldError, SessionLimitError, SlowReaderError
from earvoice.runtime.server import ServiceServer
from earvoice.runtime.settings import ServiceSettings
from tests.until import until

SERVICE = "earvoice.api.v1.EncoderService"
ENCODE = f"/{SERVICE}/Encode"
DESCRIBE = f"/{SERVICE}/DescribeModel"


class Failing(pb_grpc.EncoderServiceServicer):
    """Answers as its script says."""

    def __init__(self, failure: BaseException | None = None, flood: int = 0) -> None:
        self.failure = failure
        self.flood = flood
        self.closed = asyncio.Event()
        self.ended_by: BaseException | None = None

    async def Encode(self, request_iterator, context) -> AsyncIterator[pb.EncodeResponse]:
        try:
            async for _ in request_iterator:
                for _ in range(self.flood):
                    encoded = pb.Encoded()
                    encoded.states.data = bytes(1_000_000)
                    yield pb.EncodeResponse(encoded=encoded)
                if self.failure is not None:
                    raise self.failure
                yield pb.EncodeResponse()
        finally:
            self.ended_by = sys.exception()
            self.closed.set()

    async def DescribeModel(self, request, context):
        if self.failure is not None:
            raise self.failure
        return pb.EncoderServiceDescribeModelResponse()


@asynccontextmanager
async def serving(servicer, **settings):
    server = ServiceServer(ServiceSettings(**settings), [SERVICE])
    pb_grpc.add_EncoderServiceServicer_to_server(servicer, server.grpc_server)
    port = await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield server, channel
    finally:
        await server.grpc_server.stop(0)


def details(error: grpc.aio.AioRpcError) -> tuple[error_details_pb2.ErrorInfo, list]:
    raw = dict(error.trailing_metadata())["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(raw)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info, list(status.details)


async def raw_stream(channel, message: bytes):
    call = channel.stream_stream(ENCODE)()
    await call.write(message)
    return await call.read()


@pytest.mark.parametrize("method", ["stream", "unary"])
async def test_random_bytes_are_a_malformed_message(method: str):
    """Not UNKNOWN with a class name, as grpc.aio would have it."""
    async with serving(Failing()) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            if method == "stream":
                await raw_stream(channel, b"\xff\xfe\xfd")
            else:
                await channel.unary_unary(DESCRIBE)(b"\xff\xfe\xfd")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details(caught.value)[0].reason == "MALFORMED_MESSAGE"


@pytest.mark.parametrize(
    "wrap", [lambda e: e, lambda e: ExceptionGroup("tasks", [e])], ids=["plain", "group"]
)
async def test_our_errors_carry_field_value_and_what_is_allowed(wrap):
    """Also out of a task group."""
    failure = wrap(InvalidFieldError("k", 0, "1 to 64"))
    async with serving(Failing(failure)) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await raw_stream(channel, b"")
    assert caught.value.details() == "k = 0 is not allowed; allowed: 1 to 64"
    assert dict(details(caught.value)[0].metadata) == {
        "field": "k",
        "value": "0",
        "allowed": "1 to 64",
    }


async def test_a_client_in_full_flow_sees_the_status(monkeypatch):
    """Not the INTERNAL that grpc.aio makes of a write that meets the end of its call."""
    monkeypatch.setattr("earvoice.runtime.interceptor.DISCARD_TIMEOUT_S", 20.0)
    async with serving(Failing(InvalidFieldError("k", 0, "1 to 64"))) as (_, channel):
        codes = set()
        for _ in range(30):
            call = channel.stream_stream(ENCODE)(b"" for _ in range(20))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            codes.add(caught.value.code())
    assert codes == {grpc.StatusCode.INVALID_ARGUMENT}


async def test_a_retry_time_is_sent_where_a_retry_helps():
    """RetryInfo follows ErrorInfo."""
    async with serving(Failing(SessionLimitError("full", retry_after_ms=1500))) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(DESCRIBE)(b"")
    retry = error_details_pb2.RetryInfo()
    assert details(caught.value)[1][1].Unpack(retry)
    assert retry.retry_delay.ToMilliseconds() == 1500


async def test_an_unknown_error_says_nothing_about_itself(caplog):
    """The caller gets an incident number, the log the exception."""
    async with serving(Failing(RuntimeError("secret path"))) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await raw_stream(channel, b"")
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in caught.value.details()
    incident = details(caught.value)[0].metadata["incident"]
    assert incident in [record.__dict__.get("incident") for record in caplog.records]


async def test_a_client_that_never_reads_is_ended():
    """Its handler is told why after the write timeout, and the server goes on."""
    servicer = Failing(flood=200)
    async with serving(servicer, write_timeout_ms=200) as (_, channel):
        call = channel.stream_stream(ENCODE)()
        await call.write(b"")
        await asyncio.wait_for(servicer.closed.wait(), 120)
        assert isinstance(servicer.ended_by, SlowReaderError)
        assert await channel.unary_unary(DESCRIBE)(b"") == b""
        call.cancel()


async def test_a_client_that_vanishes_closes_its_handler():
    """Cancelled calls free what they hold."""
    servicer = Failing()
    async with serving(servicer) as (_, channel):
        call = channel.stream_stream(ENCODE)()
        await call.write(b"")
        await call.read()
        call.cancel()
        await asyncio.wait_for(servicer.closed.wait(), 120)


async def test_health_is_truthful_from_start_to_drain(tmp_path):
    """NOT_SERVING, SERVING, NOT_SERVING; the address file appears when it serves."""
    address_file = tmp_path / "address"
    async with serving(Failing(), address_file=address_file, drain_grace_ms=5000) as (
        server,
        channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        states: list[int] = []

        async def note_health() -> None:
            request = health_pb2.HealthCheckRequest(service=SERVICE)
            states.append((await stub.Check(request)).status)

        await note_health()
        assert not address_file.exists()

        async def on_drain(grace_s: float) -> None:
            assert grace_s == 5.0
            await note_health()

        running = asyncio.create_task(server.serve_until_stopped(on_drain))
        # The file says that it serves: from then on a signal drains it.
        await until(address_file.exists)
        assert address_file.read_text().startswith("127.0.0.1:")
        await note_health()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 120)
    response = health_pb2.HealthCheckResponse
    assert states == [response.NOT_SERVING, response.SERVING, response.NOT_SERVING]


async def test_without_any_grace_sessions_are_told_all_the_same():
    """They are not waited for."""
    graces_s: list[float] = []

    async def on_drain(grace_s: float) -> None:
        graces_s.append(grace_s)
        await asyncio.Event().wait()

    async with serving(Failing(), drain_grace_ms=0) as (server, _):
        server.draining.set()
        await server.serve_until_stopped(on_drain)
    assert graces_s == [0.0]


async def test_what_drains_never_serves_again():
    """A policy service that finds its first backend in the last second of its drain, say."""

    async def on_drain(_: float) -> None:
        await server.set_serving(serving=True)
        request = health_pb2.HealthCheckRequest(service=SERVICE)
        health_states.append((await health_pb2_grpc.HealthStub(channel).Check(request)).status)

    health_states: list[int] = []
    async with serving(Failing(), drain_grace_ms=60_000) as (server, channel):
        server.draining.set()
        await server.run_until_stopped(on_drain)
    assert health_states == [health_pb2.HealthCheckResponse.NOT_SERVING]


async def test_a_port_that_is_taken_is_an_error():
    """Two servers never share a port in silence."""
    async with serving(Failing()) as (server, channel):
        del channel
        taken = int(server._address.rsplit(":", 1)[1])
        second = ServiceServer(ServiceSettings(port=taken), [SERVICE])
        with pytest.raises(OSError, match=str(taken)):
            await second.start()
