"""The policy service's settings."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from earvoice.runtime.settings import (
    HIGHEST_PORT,
    MOST_SESSIONS,
    Port,
    SentSecret,
    ServiceSettings,
)
from earvoice.runtime.tls import ChannelTls

LOOKED_UP = "dns:///"
TARGET_FORM = "host:port or dns:///name:port, several separated by commas"
SHORTEST_KEY_BYTES = 32

NamedPort = tuple[str, int]
"""A name that may have several addresses, and the port that they share."""


class PolicySettings(ServiceSettings):
    """The policy service's settings, read from its environment."""

    model_config = SettingsConfigDict(env_prefix="EARVOICE_POLICY_")

    resume_keys: SecretStr | None = Field(
        None,
        description="Keys that sign resume tokens, 32 bytes or more each, in hex or base64, "
        "separated by commas: the first signs, all are accepted. All replicas need the same; "
        "without any, a session can be resumed only on its own replica, and not after a restart.",
    )
    resume_lifetime_ms: Annotated[int, Field(ge=1000, le=86_400_000)] = Field(
        7_200_000,
        description="Milliseconds after which a resume token is refused; must be more than the "
        "wall clocks of two replicas may differ.",
    )
    auth_tokens_file: Path | None = Field(
        None,
        description="File of accepted bearer tokens, one per line: `tenant SHA-256-of-the-token`, "
        "in hex; `#` begins a comment. Read again when it changes.",
    )
    auth_jwks_file: Path | None = Field(
        None,
        description="File of the keys (JSON Web Key Set) that sign accepted JWTs; needs the extra "
        "`auth`. Read again when it changes.",
    )
    auth_jwks_url: str = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description="The same keys, fetched from this URL, and again when they are old.",
    )
    auth_jwt_issuer: str = Field("", description="`iss` that a JWT must have.")
    auth_jwt_audience: str = Field("", description="`aud` that a JWT must have.")
    auth_jwt_tenant_claim: str = Field(
        "sub", min_length=1, description="Claim of a JWT that names the tenant."
    )
    tenant_session_limit: Annotated[int, Field(ge=0, le=MOST_SESSIONS)] = Field(
        0,
        description="Most concurrent sessions of one tenant at each replica; 0 for no limit but "
        "`SESSION_LIMIT`.",
    )
    backend_tls_ca_file: Path | None = Field(
        None,
        description="PEM file of the authorities that must have issued the certificates of "
        "encoder and decoder; without it, connections to them are not encrypted.",
    )
    backend_tls_certificate_file: Path | None = Field(
        None,
        description="PEM file of our certificate, for encoder and decoder to check (mutual TLS).",
    )
    backend_tls_key_file: Path | None = Field(None, description="Private key of our certificate.")
    backend_tls_server_name: str = Field(
        "",
        description="Name in the certificates of encoder and decoder; empty for the host of their "
        "target.",
    )
    backend_access_token: SentSecret | None = Field(
        None,
        min_length=16,
        description="Secret sent to encoder and decoder: one from their `ACCESS_TOKEN`.",
    )
    port: Port = Field(50051, description="Port to listen on; 0 takes a free one.")
    session_limit: Annotated[int, Field(ge=1, le=MOST_SESSIONS)] = Field(
        64, description="Most concurrent sessions; one more is refused with RESOURCE_EXHAUSTED."
    )
    encoder_target: str = Field(
        "127.0.0.1:50052",
        min_length=1,
        description=f"Replicas of the encoder: {TARGET_FORM}. A name given as `dns:///` stands "
        "for all its addresses, looked up again every few seconds.",
    )
    decoder_target: str = Field(
        "127.0.0.1:50053", min_length=1, description="Replicas of the decoder, in the same form."
    )
    extra_policies: str = Field(
        "",
        description="Additional decision policies, each `FILE.py:CLASS`, separated by commas, "
        "besides those of installed packages (entry points `earvoice.policies`). Their code runs "
        "in this service; a client can only name them.",
    )
    answer_timeout_ms: Annotated[int, Field(ge=100, le=60_000)] = Field(
        3000,
        description="Milliseconds without an answer after which a replica is given up if it does "
        "not answer health checks either: it is stopped or cut off.",
    )
    slow_answer_timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = Field(
        30_000,
        description="Milliseconds without an answer after which a replica is given up although it "
        "answers health checks: it is slow.",
    )
    replacement_wait_ms: Annotated[int, Field(ge=0, le=600_000)] = Field(
        10_000,
        description="Milliseconds to wait for another replica when one is lost, before the "
        "session ends with BACKEND_UNAVAILABLE.",
    )
    max_buffered_audio_ms: Annotated[int, Field(ge=1000, le=120_000)] = Field(
        30_000,
        description="Milliseconds of unprocessed audio that a session buffers; beyond that, the "
        "server stops reading until there is room.",
    )
    max_buffered_audio_bytes: Annotated[int, Field(ge=65_536, le=1_073_741_824)] = Field(
        8_388_608, description="The same in bytes; the smaller limit applies."
    )
    max_session_ms: Annotated[int, Field(ge=1000, le=86_400_000)] = Field(
        14_400_000,
        description="Milliseconds of audio after which a session is ended; it may be resumed.",
    )

    @property
    def backend_channel_tls(self) -> ChannelTls | None:
        if self.backend_tls_ca_file is None:
            return None
        return ChannelTls(
            self.backend_tls_ca_file,
            self.backend_tls_certificate_file,
            self.backend_tls_key_file,
            self.backend_tls_server_name,
        )

    @property
    def backend_token(self) -> str:
        return self.backend_access_token.get_secret_value() if self.backend_access_token else ""

    @property
    def checks_callers(self) -> bool:
        return bool(self.auth_tokens_file or self.checks_jwts)

    @property
    def checks_jwts(self) -> bool:
        return bool(self.auth_jwks_file or self.auth_jwks_url)

    @property
    def policy_files(self) -> tuple[str, ...]:
        return tuple(filter(None, map(str.strip, self.extra_policies.split(","))))

    @model_validator(mode="after")
    def _check_jwt(self) -> Self:
        if self.auth_jwks_file and self.auth_jwks_url:
            raise ValueError("AUTH_JWKS_FILE and AUTH_JWKS_URL are both given; allowed: one")
        if self.checks_jwts and not (self.auth_jwt_issuer and self.auth_jwt_audience):
            raise ValueError("JWTs need AUTH_JWT_ISSUER and AUTH_JWT_AUDIENCE")
        if (self.auth_jwt_issuer or self.auth_jwt_audience) and not self.checks_jwts:
            raise ValueError(
                "AUTH_JWT_ISSUER and AUTH_JWT_AUDIENCE need AUTH_JWKS_FILE or AUTH_JWKS_URL"
            )
        return self

    @model_validator(mode="after")
    def _check_tenants(self) -> Self:
        if self.tenant_session_limit and not self.checks_callers:
            raise ValueError("TENANT_SESSION_LIMIT needs AUTH_TOKENS_FILE or a key set for JWTs")
        return self

    @model_validator(mode="after")
    def _check_backend_tls(self) -> Self:
        if (self.backend_tls_certificate_file is None) != (self.backend_tls_key_file is None):
            raise ValueError(
                "BACKEND_TLS_CERTIFICATE_FILE and BACKEND_TLS_KEY_FILE are given together"
            )
        if self.backend_tls_certificate_file and self.backend_tls_ca_file is None:
            raise ValueError("BACKEND_TLS_CERTIFICATE_FILE needs BACKEND_TLS_CA_FILE")
        if self.backend_tls_server_name and self.backend_tls_ca_file is None:
            raise ValueError("BACKEND_TLS_SERVER_NAME needs BACKEND_TLS_CA_FILE")
        return self

    @field_validator("resume_keys")
    @classmethod
    def _check_keys(cls, keys: SecretStr | None) -> SecretStr | None:
        if keys is not None:
            parse_keys(keys.get_secret_value())
        return keys

    @field_validator("encoder_target", "decoder_target")
    @classmethod
    def _check_target(cls, target: str) -> str:
        parse_target(target)
        return target


def parse_target(text: str) -> tuple[tuple[str, ...], tuple[NamedPort, ...]]:
    """Read where the replicas of a service are, in the form `TARGET_FORM`.

    Returns:
        Addresses, ``host:port`` each, as given: a name here counts as one replica, and resolving
        it is left to the transport or a proxy. And names, each of whose addresses is a replica.
    """
    addresses: dict[str, None] = {}
    names: dict[NamedPort, None] = {}
    for part in (part.strip() for part in text.split(",")):
        host, port = _host_and_port(part.removeprefix(LOOKED_UP), text)
        if part.startswith(LOOKED_UP):
            names[host, port] = None
        else:
            addresses[part] = None
    return tuple(addresses), tuple(names)


def _host_and_port(part: str, text: str) -> tuple[str, int]:
    host, _, port = part.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_host = bool(bare) and "/" not in bare and (":" not in bare or bare != host)
    is_port = port.isascii() and port.isdigit() and 1 <= int(port) <= HIGHEST_PORT
    try:
        # The form in which a host is looked up; one with an empty or a long part has none.
        bare.encode("idna")
    except UnicodeError:
        is_host = False
    if not (is_host and is_port):
        raise ValueError(f"{text!r} is not allowed; allowed: {TARGET_FORM}")
    return bare, int(port)


def parse_keys(text: str) -> list[bytes]:
    """Return keys that are written in hex or base64, separated by commas."""
    return [_parse_key(number, part.strip()) for number, part in enumerate(text.split(","), 1)]


def _parse_key(number: int, text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        try:
            key = base64.b64decode(text, validate=True)
        except binascii.Error:
            raise ValueError(f"key {number} is neither hex nor base64") from None
    if len(key) < SHORTEST_KEY_BYTES:
        raise ValueError(
            f"key {number} has {len(key)} bytes; allowed: {SHORTEST_KEY_BYTES} or more"
        )
    return key
