"""Whom the policy service lets in, and how it is let in by its backends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator

from earvoice.runtime.settings import ServiceSettings
from earvoice.runtime.tls import ChannelTls


class AccessSettings(ServiceSettings):
    """Part of the policy service's settings."""

    auth_tokens_file: Path | None = Field(
        None,
        description="Bearer tokens let in, one a line: `tenant SHA-256-of-the-token`, in hex; `#` "
        "begins a comment. Read again when it changes.",
    )
    auth_jwks_file: Path | None = Field(
        None,
        description="Keys (JSON Web Key Set) that sign the JWTs let in; needs the extra `auth`. "
        "Read again when it changes.",
    )
    auth_jwks_url: str = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description="The same keys, fetched from here, and again when they are old.",
    )
    auth_jwt_issuer: str = Field("", description="`iss` that a JWT must have.")
    auth_jwt_audience: str = Field("", description="`aud` that a JWT must have.")
    auth_jwt_tenant_claim: str = Field(
        "sub", min_length=1, description="Claim of a JWT that names the tenant."
    )
    tenant_session_limit: Annotated[int, Field(ge=0, le=10_000)] = Field(
        0,
        description="Sessions of one tenant at once, at each replica; 0 for no limit but "
        "`SESSION_LIMIT`.",
    )
    backend_tls_ca_file: Path | None = Field(
        None,
        description="Authorities, PEM, that the certificates of encoder and decoder must come "
        "from; without it the connections to them are not encrypted.",
    )
    backend_tls_certificate_file: Path | None = Field(
        None, description="Our own certificate, PEM, for them to check (mutual TLS)."
    )
    backend_tls_key_file: Path | None = Field(None, description="Its private key.")
    backend_tls_server_name: str = Field(
        "", description="Name that their certificates bear; empty for the host of their target."
    )
    backend_access_token: SecretStr | None = Field(
        None, min_length=16, description="Secret shown to them: one of their `ACCESS_TOKEN`."
    )

    @property
    def backend_channel_tls(self) -> ChannelTls | None:
        """What the channels to the backends are encrypted with; None for nothing."""
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
        """What is shown to the backends; empty for nothing."""
        # A secret that was written to a file ends with a line's end, which no header may hold.
        secret = self.backend_access_token.get_secret_value() if self.backend_access_token else ""
        return secret.strip()

    @property
    def checks_callers(self) -> bool:
        """Whether the public API asks for a token."""
        return bool(self.auth_tokens_file or self.checks_jwts)

    @property
    def checks_jwts(self) -> bool:
        """Whether the public API takes JWTs."""
        return bool(self.auth_jwks_file or self.auth_jwks_url)

    @model_validator(mode="after")
    def _check_jwt(self) -> Self:
        if self.auth_jwks_file and self.auth_jwks_url:
            raise ValueError("AUTH_JWKS_FILE and AUTH_JWKS_URL are both given; allowed: one")
        if self.checks_jwts and not (self.auth_jwt_issuer and self.auth_jwt_audience):
            raise ValueError("JWTs need AUTH_JWT_ISSUER and AUTH_JWT_AUDIENCE")
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
        return self
