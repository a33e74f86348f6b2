"""JSON Web Tokens: whose they are, and which of them are refused."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from earvoice.runtime.authentication import Authenticator
from earvoice.runtime.errors import NotReadyError, PermissionDeniedError
from earvoice.runtime.jwt_verifier import FindKey, KeyUrl, jwt_verifier, key_file
from tests.deploy.tool import free_port

ISSUER = "https://issuer.example"
AUDIENCE = "earvoice"


class Issuer:
    """Signs tokens with its newest key; publishes all of its keys."""

    def __init__(self) -> None:
        self._keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self.rotate("first")

    def rotate(self, key_id: str) -> None:
        """Sign with a new key from now on."""
        self._key_id = key_id
        self._keys[key_id] = ec.generate_private_key(ec.SECP256R1())

    def token(self, **changes: object) -> str:
        """A token of the tenant `calls` that is good for a minute, with some claims changed."""
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "calls",
            "exp": datetime.now(UTC) + timedelta(minutes=1),
        } | changes
        given = {name: value for name, value in claims.items() if value is not None}
        key = self._keys[self._key_id]
        return jwt.encode(given, key, algorithm="ES256", headers={"kid": self._key_id})

    def key_set(self) -> str:
        keys = [
            json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
            | {"kid": key_id, "use": "sig", "alg": "ES256"}
            for key_id, key in self._keys.items()
        ]
        return json.dumps({"keys": keys})


class Pages:
    """Answers with some texts in turn, instead of an issuer."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)

    def key_set(self) -> str:
        return self._texts.pop(0)


@contextmanager
def published(issuer: Issuer | Pages) -> Iterator[tuple[str, list[str]]]:
    """Serve an issuer's keys; give their address, and the paths that were asked for."""
    asked: list[str] = []

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(issuer.key_set().encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Keys)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/keys", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


PAST = datetime.now(UTC) - timedelta(days=1)
FUTURE = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def file_keys(tmp_path, issuer) -> FindKey:
    path = tmp_path / "keys.json"
    path.write_text(issuer.key_set())
    return key_file(path)


def verifier(keys: FindKey, tenant_claim: str = "sub") -> Authenticator:
    return jwt_verifier(keys, ISSUER, AUDIENCE, tenant_claim)


async def test_a_valid_token_names_its_tenant(issuer, file_keys):
    """By the claim that the settings choose."""
    assert await verifier(file_keys)(issuer.token()) == "calls"
    token = issuer.token(customer="other")
    assert await verifier(file_keys, "customer")(token) == "other"


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://else.example"},
        {"aud": "else"},
        {"exp": PAST},
        {"nbf": FUTURE},
        {"iss": None},
        {"aud": None},
        {"exp": None},
    ],
    ids=lambda changes: "-".join(f"{name}={value}" for name, value in changes.items())[:12],
)
async def test_a_token_for_elsewhere_or_another_time_is_not_known(issuer, file_keys, changes):
    """Issuer, audience and times are checked, and must be there."""
    assert await verifier(file_keys)(issuer.token(**changes)) is None


async def test_a_forged_token_is_not_known(issuer, file_keys, tmp_path):
    """Another's key, a changed body, no signature, the public key as a secret, no token at all."""
    header, body, signature = issuer.token().split(".")
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "calls", "exp": FUTURE}
    forged = [
        Issuer().token(),
        f"{header}.{body[:-4]}AAAA.{signature}",
        jwt.encode(claims, None, algorithm="none", headers={"kid": "first"}),
        signed_with_secret(f"{encoded({'alg': 'HS256', 'kid': 'first'})}.{body}", issuer),
        "no token",
        "",
    ]
    assert [await verifier(file_keys)(token) for token in forged] == [None] * len(forged)


def encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def signed_with_secret(signed: str, issuer: Issuer) -> str:
    """A token whose secret is what everybody knows, the public keys; PyJWT itself makes none."""
    digest = hmac.digest(issuer.key_set().encode(), signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
async def test_an_rsa_key_is_for_the_algorithm_that_it_names_or_for_all(tmp_path, algorithm):
    """RFC 7517 lets a key leave it out."""
    private, path = rsa.generate_private_key(65537, 2048), tmp_path / "keys.json"
    key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key())) | {"kid": "rsa"}
    key.pop("alg", None)
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "calls", "exp": FUTURE}
    token = jwt.encode(claims, private, algorithm=algorithm, headers={"kid": "rsa"})
    tenants = []
    other = "PS384" if algorithm == "RS256" else "RS256"
    for named in ({}, {"alg": algorithm}, {"alg": other}):
        path.write_text(json.dumps({"keys": [key | named]}))
        tenants.append(await verifier(key_file(path))(token))
    assert tenants == ["calls", "calls", None]
    path.write_text(json.dumps({"keys": [key]}))
    _, body, signature = token.split(".")
    for claimed in ("ES256", "HS256", "none"):
        header = encoded({"alg": claimed, "kid": "rsa"})
        assert await verifier(key_file(path))(f"{header}.{body}.{signature}") is None


async def test_a_valid_token_without_a_tenant_may_not_come_in(issuer, file_keys):
    """PERMISSION_DENIED names the claim that is missing."""
    with pytest.raises(PermissionDeniedError, match="customer"):
        await verifier(file_keys, "customer")(issuer.token())


async def test_keys_are_fetched_once(issuer):
    """Tokens of an unknown key do not have them fetched time and again."""
    with published(issuer) as (url, asked):
        known = verifier(KeyUrl(url).find)
        assert [await known(issuer.token()) for _ in range(3)] == ["calls"] * 3
        assert asked == ["/keys"]
        issuer.rotate("second")
        for _ in range(3):
            await known(issuer.token())
    assert len(asked) <= 2


async def test_an_issuer_that_does_not_answer_is_asked_again_only_later(issuer):
    """Callers are told to retry, and none of them waits for it."""
    now_s = [0.0]
    keys = KeyUrl(f"http://127.0.0.1:{free_port()}/keys", lambda: now_s[0])
    known = verifier(keys.find)
    for _ in range(2):
        with pytest.raises(NotReadyError) as refused:
            await known(issuer.token())
        assert refused.value.retry_after_ms
    with published(issuer) as (url, _):
        keys._client.uri = url
        with pytest.raises(NotReadyError):
            await known(issuer.token())
        now_s[0] += 10
        assert await known(issuer.token()) == "calls"


@pytest.mark.parametrize("page", [None, "no JSON", "[]", '{"keys": []}'])
async def test_why_there_are_no_keys_is_logged_once_an_interval(issuer, caplog, page):
    """With the address and the cause; callers are told neither."""
    now_s = [0.0]
    with published(Pages(*[page or ""] * 2)) as (url, _):
        address = f"http://127.0.0.1:{free_port()}/keys" if page is None else url
        known = verifier(KeyUrl(address, lambda: now_s[0]).find)
        for count in (1, 1, 2):
            now_s[0] = 10.0 * count
            with pytest.raises(NotReadyError) as refused:
                await known(issuer.token())
            assert "keys" not in refused.value.message
            messages = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
            assert len(messages) == count
    assert all(message.startswith(f"no keys from {address}: ") for message in messages)


async def test_a_key_that_came_meanwhile_is_found(issuer):
    """Whoever waited for it does not ask the issuer, which has failed since."""
    with published(Pages(issuer.key_set(), "")) as (url, _):
        keys = KeyUrl(url)
        keys._client.cooldown_duration = 0
        first, unknown, again = await asyncio.gather(
            *(keys.find(key_id) for key_id in ("first", "unknown", "first")),
            return_exceptions=True,
        )
    assert isinstance(unknown, NotReadyError)
    assert first is again


async def test_a_key_that_is_known_needs_no_issuer(issuer):
    """Nobody locks others out by tokens of keys that there are not, while the issuer is down."""
    with published(issuer) as (url, _):
        keys = KeyUrl(url)
        known = verifier(keys.find)
        assert await known(issuer.token()) == "calls"
    # As if the keys had been fetched long enough ago to be fetched again for a new key's sake.
    keys._client.cooldown_duration = 0
    stranger = Issuer()
    stranger.rotate("unknown")
    with pytest.raises(NotReadyError):
        await known(stranger.token())
    assert await known(issuer.token()) == "calls"


async def test_callers_that_go_do_not_take_a_thread_each():
    """While the issuer is slow, nobody else would have one."""
    with socket.create_server(("127.0.0.1", 0)) as slow:
        slow.setblocking(False)
        keys = KeyUrl(f"http://127.0.0.1:{slow.getsockname()[1]}/keys")
        first = asyncio.create_task(keys.find("first"))
        asked, _ = await asyncio.get_running_loop().sock_accept(slow)
        before = set(threading.enumerate())
        first.cancel()
        second = asyncio.create_task(keys.find("second"))
        await asyncio.wait({second}, timeout=0.2)
        beside = set(threading.enumerate()) - before
        asked.close()
        await asyncio.wait({first})
        second.cancel()
    await asyncio.wait({second})
    assert not beside
    assert first.cancelled()


def test_a_file_that_holds_no_keys_is_an_error(tmp_path):
    """At the start, by what is wrong with it."""
    path = tmp_path / "keys.json"
    path.write_text('{"keys": []}')
    with pytest.raises(ValueError, match="no JSON Web Key Set"):
        key_file(path)
