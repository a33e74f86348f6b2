"""All three services with certificates and tokens on every hop, with the shipped model."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from earvoice.api.v1 import decoder_service_pb2 as decoder_pb
from earvoice.api.v1 import decoder_service_pb2_grpc as decoder_grpc
from earvoice.api.v1 import encoder_service_pb2 as encoder_pb
from earvoice.api.v1 import encoder_service_pb2_grpc as encoder_grpc
from earvoice.client import (
    AccessDeniedError,
    ChannelTls,
    Committed,
    ServerBusyError,
    Started,
    TranslationClient,
    TranslationOptions,
    connect,
)
from earvoice.runtime.transport import bearer_metadata, open_channel
from tests.certificates import Authority, Certificate
from tests.e2e.calling import SPEECH, speech
from tests.e2e.running import SERVICES, Running, earvoice, start
from tests.until import until

TOKENS = {"calls": "the-token-of-the-call-centre", "others": "the-token-of-somebody-else"}
SECRET = "what-the-policy-shows-to-its-backends"
OPTIONS = TranslationOptions(("de",))


@dataclass(frozen=True)
class Secured:
    """The running services, and what a caller needs to get in."""

    services: Running
    authority: Authority
    stranger: Certificate

    def client(self, token: str) -> TranslationClient:
        return connect(self.services.address, tls=ChannelTls(self.authority.file), token=token)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """TLS in public, mutual TLS and a secret inside; logs as talkative as they can be."""
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    tokens = folder / "tokens"
    tokens.write_text(
        "".join(f"{who} {hashlib.sha256(t.encode()).hexdigest()}\n" for who, t in TOKENS.items())
    )
    own = authority.issue("policy-to-backends")
    environment = {
        "EARVOICE_POLICY_AUTH_TOKENS_FILE": str(tokens),
        "EARVOICE_POLICY_TENANT_SESSION_LIMIT": "1",
        "EARVOICE_POLICY_BACKEND_TLS_CA_FILE": str(authority.file),
        "EARVOICE_POLICY_BACKEND_TLS_CERTIFICATE_FILE": str(own.certificate_file),
        "EARVOICE_POLICY_BACKEND_TLS_KEY_FILE": str(own.key_file),
        "EARVOICE_POLICY_BACKEND_ACCESS_TOKEN": SECRET,
    }
    for service in SERVICES:
        issued, prefix = authority.issue(service), f"EARVOICE_{service.upper()}"
        environment[f"{prefix}_LOG_LEVEL"] = "DEBUG"
        environment[f"{prefix}_TLS_CERTIFICATE_FILE"] = str(issued.certificate_file)
        environment[f"{prefix}_TLS_KEY_FILE"] = str(issued.key_file)
        if service != "policy":
            environment[f"{prefix}_TLS_CLIENT_CA_FILE"] = str(authority.file)
            environment[f"{prefix}_ACCESS_TOKEN"] = SECRET
    running = start(folder, **environment)
    yield Secured(running, authority, Authority(folder, "strange").issue("stranger"))
    assert running.stop() == 0


async def audio():
    yield speech()


async def test_a_known_tenant_is_translated_and_nobody_writes_down_what_was_said(secured: Secured):
    """Words come through every hop; neither they nor any secret are in a log, at any level."""
    words: list[str] = []
    session_id = ""
    async with secured.client(TOKENS["calls"]) as client:
        async for event in client.translate(audio(), OPTIONS):
            if isinstance(event, Started):
                session_id = event.session_id
            if isinstance(event, Committed):
                words += [word.text for word in event.words]
    marked = set(re.findall(r"\w{5,}", " ".join(words)))
    assert marked
    for service in SERVICES:
        await until(lambda service=service: "session ended" in secured.services.log(service))
        log = secured.services.log(service)
        said = set(re.findall(r"\w+", log))
        assert not marked & said
        assert not [secret for secret in (*TOKENS.values(), SECRET) if secret in log]

    def told_at_its_end() -> list[dict]:
        lines = map(json.loads, secured.services.log("policy").splitlines())
        ends = [line for line in lines if line["message"] == "session ended"]
        return [line for line in ends if session_id.startswith(line["session_id"])]

    await until(lambda: bool(told_at_its_end()))
    assert [line["tenant"] for line in told_at_its_end()] == ["calls"]


@pytest.mark.parametrize("token", ["", "a-guess", SECRET], ids=["none", "a guess", "the inner one"])
async def test_a_stranger_is_refused_in_public(secured: Secured, token: str):
    """A stream and a question to the server alike."""
    async with secured.client(token) as client:
        with pytest.raises(AccessDeniedError) as refused:
            await client.list_models()
        assert (refused.value.code, refused.value.reason) == ("UNAUTHENTICATED",) * 2
        with pytest.raises(AccessDeniedError):
            async for _ in client.translate(audio(), OPTIONS):
                pass


async def test_a_tenant_that_takes_all_it_may_leaves_room_for_another(secured: Secured):
    """Its next session is refused with a time to retry; the other tenant's is taken."""
    release = asyncio.Event()

    async def held():
        await release.wait()
        yield b""

    async with secured.client(TOKENS["calls"]) as ours, secured.client(TOKENS["others"]) as others:
        events = ours.translate(held(), OPTIONS)
        assert isinstance(await anext(events), Started)
        with pytest.raises(ServerBusyError, match="of this tenant") as refused:
            await anext(ours.translate(audio(), OPTIONS))
        assert refused.value.retry_after_s
        started = others.translate(held(), OPTIONS)
        assert isinstance(await anext(started), Started)
        release.set()
        for rest in (events, started):
            async for _ in rest:
                pass


@pytest.mark.parametrize("service", ["encoder", "decoder"])
async def test_a_backend_refuses_strangers(secured: Secured, service: str):
    """Without our authority's certificate there is no connection, without the secret no call."""
    ours = secured.authority.issue("guest")
    shown = {
        "nothing": ChannelTls(secured.authority.file),
        "another's": ChannelTls(
            secured.authority.file, secured.stranger.certificate_file, secured.stranger.key_file
        ),
        "ours": ChannelTls(secured.authority.file, ours.certificate_file, ours.key_file),
    }
    codes = {name: await describe(secured, service, tls, "") for name, tls in shown.items()}
    assert codes == {
        "nothing": grpc.StatusCode.UNAVAILABLE,
        "another's": grpc.StatusCode.UNAVAILABLE,
        "ours": grpc.StatusCode.UNAUTHENTICATED,
    }
    assert await describe(secured, service, shown["ours"], SECRET) is grpc.StatusCode.OK


async def describe(secured: Secured, service: str, tls: ChannelTls, token: str) -> grpc.StatusCode:
    async with open_channel(secured.services.addresses[service], tls=tls) as channel:
        encoder = encoder_grpc.EncoderServiceStub(channel).DescribeModel
        decoder = decoder_grpc.DecoderServiceStub(channel).DescribeModel
        try:
            if service == "encoder":
                request = encoder_pb.EncoderServiceDescribeModelRequest()
                await encoder(request, metadata=bearer_metadata(token))
            else:
                asked = decoder_pb.DecoderServiceDescribeModelRequest()
                await decoder(asked, metadata=bearer_metadata(token))
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def translate(secured: Secured, *arguments: str, token: str = "") -> tuple[int, str, str]:
    """Run the command with its own environment, and give its status, output and errors."""
    command = ("translate", SPEECH, "--fast", "--to", "de", "--server", secured.services.address)
    done = earvoice(*command, *arguments, EARVOICE_TOKEN=token)
    return done.returncode, done.stdout, done.stderr


def test_the_command_shows_its_token_over_tls(secured: Secured, tmp_path: Path):
    """From a file or from its environment; without either it says who is refused, and exits 1."""
    file = tmp_path / "token"
    file.write_text(TOKENS["calls"] + "\n")
    trusted = ("--ca-file", str(secured.authority.file))
    from_file = translate(secured, *trusted, "--token-file", str(file))
    assert from_file[0] == 0
    assert from_file[1].strip()
    assert translate(secured, *trusted, token=TOKENS["calls"])[:2] == from_file[:2]
    status, _, errors = translate(secured, *trusted)
    assert status == 1
    assert "UNAUTHENTICATED" in errors
