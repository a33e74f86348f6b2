"""Who may connect: allowed page origins, and the gateway's own short-lived access tokens."""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args
from urllib.parse import SplitResult, urlsplit, urlunsplit

import jwt
from pydantic import SecretStr
from starlette.requests import HTTPConnection

from earvoice.gateway.settings import GatewaySettings
from earvoice.runtime.authentication import is_showable
from earvoice.runtime.errors import PermissionDeniedError, UnauthenticatedError
from earvoice.runtime.tls import is_loopback

Scope = Literal["speak", "read"]
ANY_STREAM = "*"
_ALGORITHM = "HS256"
_SUBPROTOCOL_PREFIX = "openai-insecure-api-key."


@dataclass(frozen=True)
class Admission:
    """What a caller may do.

    Attributes:
        server_token: bearer token to send to the policy service; empty for none.
    """

    server_token: str
    stream: str = ANY_STREAM

    def check_stream(self, name: str) -> None:
        if self.stream not in {ANY_STREAM, name}:
            raise PermissionDeniedError(f"the access token is for the stream {self.stream!r}")


class Gatekeeper:
    """Checks callers' origins and tokens.

    Args:
        hands_on: callers' tokens may be passed on to the policy service, which checks them if the
            gateway signs none of its own.
    """

    def __init__(self, settings: GatewaySettings, *, hands_on: bool = True) -> None:
        self._token_key = _secret(settings.token_key)
        self._server_token = _secret(settings.server_token)
        self._twilio_key = _secret(settings.twilio_auth_token)
        self._twilio_addresses = _with_and_without_port(settings.twilio_address)
        self._allowed_origins = settings.allowed_origins
        self._allowed_names = {read_address(origin).hostname for origin in self._allowed_origins}
        self._is_local = is_loopback(settings.host)
        self._hands_on = hands_on

    def check_origin(self, connection: HTTPConnection) -> None:
        """Check the origin of a browser's page, and the name that it knows this gateway by.

        Other clients send no origin. A page can make its own host name resolve to this machine, and
        then has our origin: where only this machine may connect, no other name is accepted.
        """
        if "*" in self._allowed_origins:
            return
        origin, host = (connection.headers.get(name) for name in ("origin", "host"))
        if origin is not None and origin in self._allowed_origins:
            return
        if origin is not None and read_address(origin).netloc != host:
            raise PermissionDeniedError(f"pages of {origin} are not allowed (ALLOWED_ORIGINS)")
        name = read_address(f"//{host or ''}").hostname
        if self._is_local and name and not is_loopback(name) and name not in self._allowed_names:
            raise PermissionDeniedError(
                f"requests to {name} are not allowed: HOST is this machine alone (ALLOWED_ORIGINS)"
            )

    def admit_twilio(self, connection: HTTPConnection) -> Admission | None:
        """Check Twilio's signature of a connection; None where its account's key is not known."""
        if not self._twilio_key:
            return None
        given = connection.headers.get("x-twilio-signature", "").encode()
        for address in self._twilio_addresses:
            digest = hmac.digest(self._twilio_key.encode(), address.encode(), "sha1")
            if hmac.compare_digest(base64.b64encode(digest), given):
                return self.trusted
        raise UnauthenticatedError("the call is not signed by Twilio's account for TWILIO_ADDRESS")

    @property
    def trusted(self) -> Admission:
        """What a caller may do that is known by other means than a token."""
        return Admission(self._server_token)

    def admit(self, token: str, scope: Scope | None = None) -> Admission:
        """Check a caller's token, and that it covers ``scope``; None accepts any scope."""
        if not is_showable(token):
            raise UnauthenticatedError("the access token has characters other than printable ASCII")
        if not self._token_key:
            if token and not self._hands_on:
                raise UnauthenticatedError(
                    "tokens are refused here: the connection to the policy service, which would "
                    "check them, is not encrypted (SERVER_TLS_CA_FILE)"
                )
            return Admission(token)
        if not token:
            raise UnauthenticatedError("an access token is needed: a bearer token of this gateway")
        try:
            claims = jwt.decode(
                token,
                self._token_key,
                algorithms=[_ALGORITHM],
                options={"require": ["exp", "scope", "stream"]},
            )
        except jwt.ExpiredSignatureError as error:
            raise UnauthenticatedError("the access token has expired") from error
        except jwt.InvalidTokenError as error:
            raise UnauthenticatedError("the access token is not valid") from error
        if scope is not None and claims["scope"] != scope:
            raise PermissionDeniedError(f"the access token is not for scope {scope!r}")
        if not isinstance(claims["stream"], str):
            raise UnauthenticatedError("the access token is not valid")
        return Admission(self._server_token, claims["stream"])


def read_address(address: str) -> SplitResult:
    """Split a caller's address; an invalid one yields empty parts."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _with_and_without_port(address: str) -> tuple[str, ...]:
    """Twilio signs sometimes the one and sometimes the other, as its own package says."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    ports = "", f":{parts.port or 443}"
    return tuple(urlunsplit(parts._replace(netloc=host + port)) for port in ports)


def _secret(value: SecretStr | None) -> str:
    return value.get_secret_value() if value else ""


def issue_token(token_key: str, scope: Scope, stream: str, lifetime: timedelta) -> str:
    """Return a token that lets its bearer speak into or read one stream (``*``: any)."""
    assert scope in get_args(Scope)  # noqa: S101 - callers choose from these
    expires = datetime.now(UTC) + lifetime
    claims = {"scope": scope, "stream": stream, "exp": expires}
    return jwt.encode(claims, token_key, algorithm=_ALGORITHM)


def shown_token(connection: HTTPConnection) -> str:
    """Return the token that a connection carries; empty for none.

    A header `Authorization: Bearer …`, a query parameter `access_token`, or, from a browser that
    speaks the OpenAI dialect, the subprotocol that its SDK hides the key in.
    """
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    for protocol in connection.scope.get("subprotocols", ()):
        if protocol.startswith(_SUBPROTOCOL_PREFIX):
            return str(protocol.removeprefix(_SUBPROTOCOL_PREFIX))
    return connection.query_params.get("access_token", "")
