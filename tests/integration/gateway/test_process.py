"""The gateway's process: what it says where it cannot serve."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys

import pytest

from tests.certificates import Authority
from tests.integration.gateway.running_gateway import run_gateway


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"TLS_CERTIFICATE_FILE": "none.pem", "TLS_KEY_FILE": "none.key"},
            "certificate none.pem with key none.key cannot be used",
        ),
        ({"HOST": "256.0.0.1"}, "EARVOICE_GATEWAY_HOST: cannot listen on 256.0.0.1:0: "),
    ],
)
async def test_a_gateway_that_cannot_serve_does_not_say_that_it_does(settings, told, tmp_path):
    """What is wrong is named, and nobody is given an address."""
    address_file = tmp_path / "address"
    settings |= {"PORT": "0", "ADDRESS_FILE": str(address_file)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "earvoice.gateway"),
        env={**os.environ, **{f"EARVOICE_GATEWAY_{name}": it for name, it in settings.items()}},
        stderr=asyncio.subprocess.PIPE,
    )
    _, output = await process.communicate()
    (line,) = [json.loads(line) for line in output.splitlines()]
    assert process.returncode == 1
    assert line["message"].startswith(f"cannot serve: {told}")
    assert not address_file.exists()


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_container_s_health_check_asks_where_the_gateway_is(is_encrypted, tmp_path):
    """At its own port, encrypted or not."""
    settings = {}
    if is_encrypted:
        issued = Authority(tmp_path).issue("gateway")
        settings |= {
            "tls_certificate_file": issued.certificate_file,
            "tls_key_file": issued.key_file,
        }

    async def probe():
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "earvoice.gateway.probe"), env={**os.environ, **environment}
        )
        return await process.wait()

    async with run_gateway("127.0.0.1:1", **settings) as (address, _):
        environment = {
            f"EARVOICE_GATEWAY_{name.upper()}": str(value) for name, value in settings.items()
        }
        environment["EARVOICE_GATEWAY_PORT"] = address.rpartition(":")[2]
        assert await probe() == 0
    assert await probe() == 1


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this system has no IPv6")
@pytest.mark.parametrize("loopback", ["127.0.0.1", "::1"])
async def test_at_all_addresses_ipv4_and_ipv6_come_in(loopback):
    """As at the services: a cluster may have both, and probe by either."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "earvoice.gateway"),
        env={**os.environ, "EARVOICE_GATEWAY_HOST": "::", "EARVOICE_GATEWAY_PORT": "0"},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        listening = json.loads(await process.stderr.readline())
        _, writer = await asyncio.open_connection(loopback, listening["address"].rpartition(":")[2])
        writer.close()
    finally:
        process.kill()
        await process.communicate()
