"""Tokens over real gRPC: who is let in, as whom, and what the others learn."""

from __future__ import annotations

import hashlib

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import encoder_service_pb2_grpc as pb_grpc
from earvoice.runtime.authentication import shared_secrets
from earvoice.runtime.authentication import token_file as tokens_of
from earvoice.runtime.settings import ServiceSettings
from earvoice.runtime.status import remote_error
from earvoice.runtime.transport import bearer_metadata
from tests.integration.runtime.plain_service import plain_service

TOKEN = "the-token-of-a-call-centre"


def line(tenant: str, token: str) -> str:
    return f"{tenant} {hashlib.sha256(token.encode()).hexdigest()}\n"


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# whose  SHA-256\n\n{line('calls', TOKEN)}")
    return path


async def describe(channel, metadata) -> tuple[str, str]:
    """The code and reason of a call; OK and nothing for one that is served."""
    try:
        await pb_grpc.EncoderServiceStub(channel).DescribeModel(
            pb.EncoderServiceDescribeModelRequest(), metadata=metadata
        )
    except grpc.aio.AioRpcError as error:
        return error.code().name, remote_error(error).reason
    return "OK", ""


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", ""),),
        (("authorization", "Bearer"),),
        (("authorization", f"Basic {TOKEN}"),),
        bearer_metadata(TOKEN + "x"),
        bearer_metadata(hashlib.sha256(TOKEN.encode()).hexdigest()),
    ],
    ids=["nothing", "empty", "no token", "another scheme", "a guess", "the digest itself"],
)
async def test_a_stranger_is_refused(token_file, metadata, caplog):
    """UNAUTHENTICATED with a reason; nothing is called, no log and no status has the token."""
    async with (
        plain_service(ServiceSettings(), tokens_of(token_file)) as (service, port),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        assert await describe(channel, metadata) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
        stream = pb_grpc.EncoderServiceStub(channel).Encode(metadata=metadata)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert service.tenants == []
    assert TOKEN not in refused.value.details() + caplog.text


async def test_a_known_token_names_its_tenant(token_file):
    """In unary calls and in streams."""
    async with (
        plain_service(ServiceSettings(), tokens_of(token_file)) as (service, port),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        assert await describe(channel, bearer_metadata(TOKEN)) == ("OK", "")
        stream = pb_grpc.EncoderServiceStub(channel).Encode(metadata=bearer_metadata(TOKEN))
        await stream.write(pb.EncodeRequest())
        await stream.read()
    assert service.tenants == ["calls", "calls"]


async def test_a_change_of_the_file_counts_at_once(token_file, caplog):
    """A token that is added is let in, one that is gone is not; a broken file changes nothing."""
    async with (
        plain_service(ServiceSettings(), tokens_of(token_file)) as (service, port),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        token_file.write_text(line("others", "a-new-token-for-others"))
        assert (await describe(channel, bearer_metadata(TOKEN)))[0] == "UNAUTHENTICATED"
        assert (await describe(channel, bearer_metadata("a-new-token-for-others")))[0] == "OK"
        token_file.write_text("others their-token-in-the-clear\n")
        assert (await describe(channel, bearer_metadata("a-new-token-for-others")))[0] == "OK"
    assert service.tenants == ["others", "others"]
    assert "line 1" in caplog.text
    assert "in-the-clear" not in caplog.text


async def test_health_needs_no_token(token_file):
    """Load balancers and kubelets have none."""
    async with (
        plain_service(ServiceSettings(), tokens_of(token_file)) as (_, port),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_either_of_two_secrets_is_let_in_while_they_change():
    """And no third."""
    async with (
        plain_service(ServiceSettings(), shared_secrets(["old-secret", "new-secret"])) as (_, port),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        answers = [
            (await describe(channel, bearer_metadata(secret)))[0]
            for secret in ("old-secret", "new-secret", "no-secret")
        ]
    assert answers == ["OK", "OK", "UNAUTHENTICATED"]
