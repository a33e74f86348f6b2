"""The health probe of the images: its exit code says whether a service serves."""

import asyncio
import sys
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

Status = health_pb2.HealthCheckResponse


@asynccontextmanager
async def telling(status):
    """A server's address that tells one health, for itself and for `named`."""
    servicer = health.aio.HealthServicer()
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    for name in ("", "named"):
        await servicer.set(name, status)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def probe(*arguments):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "earvoice.runtime.probe", *arguments),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    return process.returncode, said.decode()


@pytest.mark.parametrize("arguments", [(), ("--service=named",)])
async def test_serving_is_0(arguments):
    """And nothing is said."""
    async with telling(Status.SERVING) as address:
        assert await probe(address, *arguments) == (0, "")


async def test_not_serving_is_1():
    """A service that loads, drains or waits for others."""
    async with telling(Status.NOT_SERVING) as address:
        code, said = await probe(address)
    assert (code, said.strip()) == (1, f"{address}: NOT_SERVING")


async def test_an_unknown_service_is_1():
    """A misspelt name is not health."""
    async with telling(Status.SERVING) as address:
        code, said = await probe(address, "--service=other")
    assert code == 1
    assert "NOT_FOUND" in said


async def test_no_answer_is_1():
    """Nobody listens."""
    async with telling(Status.SERVING) as address:
        pass
    code, said = await probe(address)
    assert code == 1
    assert "UNAVAILABLE" in said
