"""Encrypted connections, and callers that show a certificate, over real TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import encoder_service_pb2_grpc as pb_grpc
from earvoice.runtime.settings import ServiceSettings
from earvoice.runtime.tls import ChannelTls, TlsFileError
from earvoice.runtime.transport import open_channel
from tests.certificates import Authority
from tests.deploy.tool import free_port
from tests.integration.runtime.plain_service import plain_service

TIMEOUT_S = 120


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server_settings(authority: Authority, **changes) -> ServiceSettings:
    issued = authority.issue("server")
    return ServiceSettings(
        tls_certificate_file=issued.certificate_file, tls_key_file=issued.key_file, **changes
    )


async def describe(port: int, tls: ChannelTls | None) -> grpc.StatusCode:
    """Call over a new connection, and say how it went."""
    async with open_channel(f"127.0.0.1:{port}", tls=tls) as channel:
        try:
            await pb_grpc.EncoderServiceStub(channel).DescribeModel(
                pb.EncoderServiceDescribeModelRequest(), timeout=TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


async def test_a_client_that_knows_the_authority_is_served(authority):
    """And one that speaks plainly, or trusts another authority, is not."""
    async with plain_service(server_settings(authority)) as (_, port):
        assert await describe(port, ChannelTls(authority.file)) is grpc.StatusCode.OK
        assert await describe(port, None) is grpc.StatusCode.UNAVAILABLE
        strange = Authority(authority.file.parent, "strange")
        assert await describe(port, ChannelTls(strange.file)) is grpc.StatusCode.UNAVAILABLE


async def test_a_certificate_for_another_host_is_refused_unless_that_name_is_wanted(authority):
    """`server_name` is for addresses that no certificate bears, such as a pod's."""
    issued = authority.issue("elsewhere", "encoder.example")
    settings = ServiceSettings(
        tls_certificate_file=issued.certificate_file, tls_key_file=issued.key_file
    )
    async with plain_service(settings) as (_, port):
        assert await describe(port, ChannelTls(authority.file)) is grpc.StatusCode.UNAVAILABLE
        named = ChannelTls(authority.file, server_name="encoder.example")
        assert await describe(port, named) is grpc.StatusCode.OK


async def test_mutual_tls_serves_only_callers_with_a_certificate(authority):
    """No certificate and one from elsewhere are refused before a call begins."""
    settings = server_settings(authority, tls_client_ca_file=authority.file)
    ours = authority.issue("policy")
    strange = Authority(authority.file.parent, "strange").issue("stranger")
    async with plain_service(settings) as (service, port):
        for shown, code in (
            ((ours.certificate_file, ours.key_file), grpc.StatusCode.OK),
            ((strange.certificate_file, strange.key_file), grpc.StatusCode.UNAVAILABLE),
            ((None, None), grpc.StatusCode.UNAVAILABLE),
        ):
            assert await describe(port, ChannelTls(authority.file, *shown)) is code
    assert len(service.tenants) == 1


async def test_a_new_certificate_is_served_without_a_restart(authority):
    """What the files hold counts for the next connection; the one that stands stays."""
    settings = server_settings(authority)
    async with plain_service(settings) as (_, port):
        before = served_certificate(port, authority)
        async with open_channel(f"127.0.0.1:{port}", tls=ChannelTls(authority.file)) as channel:
            stream = pb_grpc.EncoderServiceStub(channel).Encode()
            await stream.write(pb.EncodeRequest())
            await stream.read()
            authority.issue("server")
            assert served_certificate(port, authority) != before
            await stream.write(pb.EncodeRequest())
            assert await stream.read() == pb.EncodeResponse()


async def test_a_broken_new_certificate_leaves_the_old_one(authority, caplog):
    """The log says so."""
    settings = server_settings(authority)
    async with plain_service(settings) as (_, port):
        before = served_certificate(port, authority)
        settings.tls_certificate_file.write_text("half a certificate")
        assert served_certificate(port, authority) == before
    assert "the old one stays" in caplog.text


async def test_health_can_be_asked_in_plain_where_the_rest_is_mutual_tls(authority):
    """Kubernetes' probes speak no TLS; that port serves nothing else."""
    health_port = free_port()
    settings = server_settings(
        authority, tls_client_ca_file=authority.file, health_port=health_port
    )
    async with (
        plain_service(settings),
        grpc.aio.insecure_channel(f"127.0.0.1:{health_port}") as channel,
    ):
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await describe(health_port, None) is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("broken", ["missing", "garbage", "another's key"])
def test_files_that_cannot_be_used_are_named(authority, broken):
    """Before anything is opened, not by a connection that fails."""
    issued = authority.issue("server")
    if broken == "missing":
        issued.key_file.unlink()
    elif broken == "garbage":
        issued.key_file.write_text("no key")
    else:
        authority.issue("other").key_file.replace(issued.key_file)
    tls = ChannelTls(authority.file, issued.certificate_file, issued.key_file)
    with pytest.raises(TlsFileError, match=issued.key_file.name):
        open_channel("127.0.0.1:1", tls=tls)


def served_certificate(port: int, authority: Authority) -> str:
    """The certificate that a new connection sees."""
    return ssl.get_server_certificate(
        ("127.0.0.1", port), ca_certs=str(authority.file), timeout=TIMEOUT_S
    )
