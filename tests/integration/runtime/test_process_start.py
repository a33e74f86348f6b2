"""What a service says when it cannot listen, and where it listens."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import socket
import sys
from collections.abc import Callable

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import speech_translation_service_pb2_grpc as pb_grpc

SERVICES = ("policy", "encoder", "decoder")
DESCRIPTORS = 128
# Of HTTP/2.
FRAME_HEAD_BYTES, GOAWAY = 9, 7


async def start(
    service: str, before: Callable[[], None] | None = None, **settings: str
) -> asyncio.subprocess.Process:
    """Start a service's process; only these of its settings are set."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("EARVOICE_")
    }
    prefix = f"EARVOICE_{service.upper()}_"
    environment |= {f"{prefix}{name}": value for name, value in settings.items()}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"earvoice.{service}"),
        env=environment,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=before,
    )


@pytest.mark.parametrize(
    ("service", "setting"),
    [
        *itertools.product(SERVICES, ("PORT", "HEALTH_PORT", "METRICS_PORT")),
        ("gateway", "PORT"),
        ("gateway", "METRICS_PORT"),
    ],
)
async def test_a_taken_port_is_told_with_its_setting(service, setting):
    """One line, and nothing else: no traceback, nothing of gRPC's core."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await start(service, **{"PORT": "0", setting: str(port)})
        output = (await process.stderr.read()).decode()
    assert await process.wait() == 1
    (line,) = [json.loads(line) for line in output.splitlines() if '"CRITICAL"' in line]
    told = f"EARVOICE_{service.upper()}_{setting}: cannot listen on 127.0.0.1:{port}"
    assert line["message"] == f"cannot serve: {told}: Address already in use"
    assert all(line.startswith("{") for line in output.splitlines())


@pytest.mark.parametrize("metrics_port", [{}, {"METRICS_PORT": "9464"}])
@pytest.mark.parametrize("host", ["999.1.1.1", "192.0.2.1"])
async def test_a_host_that_is_not_ours_is_told_with_its_setting(host, metrics_port):
    """No port is at fault, whichever listens first."""
    process = await start("policy", HOST=host, PORT="0", **metrics_port)
    output = (await process.stderr.read()).decode()
    assert await process.wait() == 1
    (line,) = [json.loads(line) for line in output.splitlines() if '"CRITICAL"' in line]
    told = "cannot serve: EARVOICE_POLICY_HOST: cannot listen on "
    assert line["message"].startswith(f"{told}{host}:")


async def test_authorities_that_are_missing_are_told_before_anything_is_served():
    """Those of encoder and decoder, too, though their connections are opened later."""
    process = await start("policy", PORT="0", BACKEND_TLS_CA_FILE="/nowhere/ca.pem")
    output = (await process.stderr.read()).decode()
    assert await process.wait() == 1
    assert all(line.startswith("{") for line in output.splitlines())
    (line,) = [json.loads(line) for line in output.splitlines() if '"CRITICAL"' in line]
    assert line["message"].startswith("cannot serve: ")
    assert "/nowhere/ca.pem" in line["message"]


async def first_line(process: asyncio.subprocess.Process, message: str) -> dict[str, str]:
    """The first line of the log that says this."""
    line = {"message": ""}
    while line["message"] != message:
        line = json.loads(await process.stderr.readline())
    return line


@pytest.mark.parametrize("service", [*SERVICES, "gateway"])
async def test_a_signal_ends_a_service_that_does_not_serve_yet(service):
    """As well as one that does: whoever reads that it listens may stop it."""
    process = await start(service, PORT="0")
    await first_line(process, "listening")
    process.terminate()
    output = (await process.stderr.read()).decode()
    assert await process.wait() == 0, output
    assert all(line.startswith("{") for line in output.splitlines())
    assert "Traceback" not in output


async def test_a_normal_end_is_told_by_the_log_alone():
    """With a client connected, of whose end gRPC's core would have something to say."""
    process = await start("policy", PORT="0")
    address = (await first_line(process, "listening"))["address"]
    async with grpc.aio.insecure_channel(address) as channel:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        process.terminate()
        output = (await process.stderr.read()).decode()
    assert await process.wait() == 0
    assert all(line.startswith("{") for line in output.splitlines()), output


async def test_a_connection_without_a_call_is_closed():
    """After the time that is set, whatever it is; the service says so (GOAWAY)."""
    process = await start("policy", PORT="0", CONNECTION_IDLE_MS="1000")
    host, _, port = (await first_line(process, "listening"))["address"].rpartition(":")
    reader, writer = await open_http2(host, int(port))
    kind = None
    while kind != GOAWAY:
        head = await reader.readexactly(FRAME_HEAD_BYTES)
        kind = head[3]
        await reader.readexactly(int.from_bytes(head[:3]))
    writer.close()
    process.terminate()
    await process.stderr.read()
    assert await process.wait() == 0


async def test_idle_connections_do_not_take_all_descriptors():
    """A service stops taking connections in time, and answers those that it has."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    process = await start("policy", limit, PORT="0")
    line = await first_line(process, "listening")
    host, _, port = line["address"].rpartition(":")
    async with grpc.aio.insecure_channel(line["address"]) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        await health.Check(health_pb2.HealthCheckRequest())
        idle = [await open_http2(host, int(port)) for _ in range(2 * DESCRIPTORS)]
        taken = [settled for reader, _ in idle if (settled := await reader.read(9))]
        assert 0 < len(taken) < DESCRIPTORS - 32
        assert psutil.Process(process.pid).num_fds() < DESCRIPTORS - 32
        await health.Check(health_pb2.HealthCheckRequest())
        stub = pb_grpc.SpeechTranslationServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.ListModels(pb.ListModelsRequest())
        # There is no encoder: that is told, and nothing of descriptors.
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        for _, writer in idle:
            writer.close()
    process.kill()
    await process.wait()


async def open_http2(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that greets and then says nothing more."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    return reader, writer


@pytest.mark.skipif(not socket.has_ipv6, reason="this system has no IPv6")
@pytest.mark.parametrize("host", ["::1", "[::1]"])
async def test_an_ipv6_address_needs_no_brackets(host):
    """It is told with them."""
    process = await start("policy", HOST=host, PORT="0")
    line = await first_line(process, "listening")
    assert line["address"].startswith("[::1]:")
    process.kill()
    await process.wait()
