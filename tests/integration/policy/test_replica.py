"""Whether we and a replica know each other, by certificates and tokens; what is said if not."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from earvoice.api.v1 import encoder_service_pb2_grpc as encoder_grpc
from earvoice.policy.backends import Backends
from earvoice.policy.backends.replicas import ENCODER, BackendAccess, Replica
from earvoice.runtime.authentication import Authenticator, shared_secrets
from earvoice.runtime.errors import NotReadyError
from earvoice.runtime.interceptor import StatusInterceptor
from earvoice.runtime.tls import ChannelTls, ServerTls
from earvoice.runtime.transport import server_credentials
from tests.certificates import Authority
from tests.deploy.tool import free_port
from tests.integration.policy.fleet import all_ready
from tests.integration.policy.scripted_backends import MODEL, ScriptedEncoder, scripted_replica


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
async def serving(tls: ServerTls | None, authenticator: Authenticator | None = None):
    """Give the address of an encoder."""
    server = grpc.aio.server(interceptors=[StatusInterceptor(10, authenticator)])
    encoder_grpc.add_EncoderServiceServicer_to_server(ScriptedEncoder(), server)
    healths = health.aio.HealthServicer()
    await healths.set(ENCODER.health_name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healths, server)
    if tls is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
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


@asynccontextmanager
async def running(backends: Backends):
    following = asyncio.create_task(backends.run())
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait({following})


async def ask_often(backends: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Try encoder and decoder three times each, without the time between."""
    naps: Counter[object] = Counter()
    over = asyncio.Event()

    async def nap(_: float) -> None:
        naps[asyncio.current_task()] += 1
        if list(naps.values()) == [3, 3]:
            over.set()
        if naps[asyncio.current_task()] == 3:
            await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "sleep", nap)
        async with running(backends), asyncio.timeout(200):
            await over.wait()


def told_to_clients(backends: Backends) -> str:
    with pytest.raises(NotReadyError) as refused:
        backends.choose_model()
    return refused.value.message


UNREACHABLE = "the encoder cannot be reached and the decoder cannot be reached"
UNCONNECTED = [("encoder", "UNAVAILABLE"), ("decoder", "UNAVAILABLE")]


@pytest.mark.parametrize(
    ("problem", "message", "warnings"),
    [
        (
            "token",
            "the encoder refuses this server and the decoder is another service",
            [("encoder", "UNAUTHENTICATED"), ("decoder", "SERVICE_UNKNOWN")],
        ),
        ("plaintext", UNREACHABLE, UNCONNECTED),
        ("authority", UNREACHABLE, UNCONNECTED),
        ("name", UNREACHABLE, UNCONNECTED),
        ("not started", "", []),
    ],
)
async def test_why_engines_cannot_be_used_is_told_once(
    tmp_path: Path, monkeypatch, caplog, problem: str, message: str, warnings: list
):
    """The log has the address and the cause; clients learn neither."""
    right, wrong = Authority(tmp_path, "right"), Authority(tmp_path, "wrong")
    async with AsyncExitStack() as stack:
        address, access = f"127.0.0.1:{free_port()}", BackendAccess(token="ours")
        if problem == "token":
            address = await stack.enter_async_context(serving(None, shared_secrets(["theirs"])))
        elif problem == "name":
            address = "no such:1"
        elif problem != "not started":
            issued = right.issue("server")
            tls = ServerTls(issued.certificate_file, issued.key_file)
            address = await stack.enter_async_context(serving(tls))
        if problem == "authority":
            access = BackendAccess(ChannelTls(wrong.file))
        backends = Backends(address, address, access=access)
        with caplog.at_level(logging.WARNING, "earvoice"):
            await ask_often(backends, monkeypatch)
    found = [record for record in caplog.records if record.name == "earvoice.policy.backends"]
    assert sorted((record.backend, record.status) for record in found) == sorted(warnings)
    assert all(record.address == address and record.details for record in found)
    assert told_to_clients(backends) == (
        f"{message}: this server's log says why"
        if message
        else "no answer yet from the encoder and the decoder"
    )


async def test_clients_are_told_that_the_models_differ():
    """Both have answered."""
    encoder, decoder = scripted_replica("encoder"), scripted_replica("decoder")
    decoder.servicer.model = type(MODEL)(name="another", hash="h2")
    async with AsyncExitStack() as stack:
        for replica in (encoder, decoder):
            await replica.start()
            stack.push_async_callback(replica.die)
        backends = Backends(encoder.address, decoder.address)
        assert told_to_clients(backends) == "no answer yet from the encoder and the decoder"
        await stack.enter_async_context(running(backends))
        await all_ready(backends, 1, 1)
        assert told_to_clients(backends) == "the encoder and the decoder serve different models"
