"""Envoy with TLS to both sides: who is trusted, and that certificates are read again."""

import asyncio
import shutil

import grpc
import pytest

from tests.certificates import Authority
from tests.deploy.envoy_process import envoy_before
from tests.deploy.named_service import named_services, replica_of

CONFIGURATION = "envoy-tls.yaml"
PATIENCE_S = 60.0


class Certificates:
    """Folders as a pod has them: `public` for clients, `internal` for our own.

    Args:
        folder: gets them.
    """

    def __init__(self, folder):
        self.folder = folder
        for name in ("public", "internal", "service"):
            (folder / name).mkdir()
        self.public = Authority(folder / "public")
        self.public.issue("tls")
        self.internal = Authority(folder / "internal")
        self.internal.issue("tls", "earvoice-envoy")
        shutil.copy(self.internal.file, folder / "internal" / "ca.crt")

    def of_service(self, host):
        """A policy service's credentials: it shows a host's name, and asks for a certificate."""
        shown = self.internal.issue("service", host)
        pair = (shown.key_file.read_bytes(), shown.certificate_file.read_bytes())
        authority = self.internal.file.read_bytes()
        return grpc.ssl_server_credentials([pair], authority, require_client_auth=True)


async def replica_for(authority, address):
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
    async with grpc.aio.secure_channel(address, credentials) as channel:
        return await replica_of(channel, "1")


@pytest.fixture
def certificates(tmp_path):
    return Certificates(tmp_path)


async def test_both_sides_are_encrypted(certificates, tmp_path):
    """A client knows Envoy by its public certificate; the services know it by its internal one."""
    credentials = certificates.of_service("earvoice-policy")
    async with (
        named_services(2, credentials) as services,
        envoy_before(services, tmp_path, CONFIGURATION, tmp_path) as (address, _),
    ):
        assert await replica_for(certificates.public, address) in {"0", "1"}
        with pytest.raises(grpc.aio.AioRpcError):
            await replica_for(certificates.internal, address)
        async with grpc.aio.insecure_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await replica_of(channel, "1")


async def test_a_service_of_another_name_is_not_trusted(certificates, tmp_path):
    """A certificate of our authority is not enough: an engine has one as well."""
    credentials = certificates.of_service("earvoice-engine")
    async with (
        named_services(1, credentials) as services,
        envoy_before(services, tmp_path, CONFIGURATION, tmp_path, healthy=0) as (address, _),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await replica_for(certificates.public, address)
        assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
        assert services[0].asked == 0


async def test_a_new_certificate_is_shown_without_a_restart(certificates, tmp_path):
    """As certificates are rotated: the files are exchanged, and new connections get the new one."""
    credentials = certificates.of_service("earvoice-policy")
    async with (
        named_services(1, credentials) as services,
        envoy_before(services, tmp_path, CONFIGURATION, tmp_path) as (address, _),
    ):
        successor = Authority(tmp_path / "public", "successor")
        with pytest.raises(grpc.aio.AioRpcError):
            await replica_for(successor, address)
        successor.issue("tls")
        async with asyncio.timeout(PATIENCE_S):
            assert await first_answer(successor, address) == "0"


async def first_answer(authority, address):
    """Who answers, as soon as Envoy is trusted."""
    while True:
        try:
            return await replica_for(authority, address)
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.2)
