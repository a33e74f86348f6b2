"""A replica behind TLS: the certificates that we know it by, and that it knows us by."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from earvoice.api.v1 import encoder_service_pb2_grpc as encoder_grpc
from earvoice.policy.backends.replicas import ENCODER, BackendAccess, Replica
from earvoice.runtime.tls import ChannelTls, ServerTls
from earvoice.runtime.transport import server_credentials
from tests.certificates import Authority
from tests.integration.policy.scripted_backends import ScriptedEncoder


@dataclass(frozen=True)
class CountedAccess(BackendAccess):
    """Says when a channel has been opened a second time."""

    opened: list[str] = field(default_factory=list)
    again: asyncio.Event = field(default_factory=asyncio.Event)

    def open_channel(self, address: str) -> grpc.aio.Channel:
        self.opened.append(address)
        if len(self.opened) > 1:
            self.again.set()
        return super().open_channel(address)


@asynccontextmanager
async def serving(tls: ServerTls):
    server = grpc.aio.server()
    encoder_grpc.add_EncoderServiceServicer_to_server(ScriptedEncoder(), server)
    healths = health.aio.HealthServicer()
    await healths.set(ENCODER.health_name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healths, server)
    port = server.add_secure_port("127.0.0.1:0", server_credentials(tls))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@pytest.mark.parametrize("is_mutual", [False, True])
async def test_new_certificates_are_taken_without_a_restart(tmp_path: Path, is_mutual: bool):
    """Those of the replica's authority, and our own for a replica that asks for one."""
    right, wrong = Authority(tmp_path, "right"), Authority(tmp_path, "wrong")
    server = right.issue("server")
    ours = (wrong if is_mutual else right).issue("ours")
    known = tmp_path / "known.pem"
    shutil.copy(right.file if is_mutual else wrong.file, known)
    access = CountedAccess(ChannelTls(known, ours.certificate_file, ours.key_file))
    client_ca = right.file if is_mutual else None
    changed = asyncio.Event()
    async with (
        serving(ServerTls(server.certificate_file, server.key_file, client_ca)) as address,
        asyncio.timeout(200),
    ):
        replica = Replica(ENCODER, address, access, changed.set)
        watching = asyncio.create_task(replica.watch())
        await access.again.wait()
        assert not replica.is_ready
        right.issue("ours")
        shutil.copy(right.file, known)
        await changed.wait()
        assert replica.is_ready
        watching.cancel()
        await asyncio.wait({watching})
        await replica.close()
