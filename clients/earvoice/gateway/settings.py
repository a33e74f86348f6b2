"""Settings of the gateway, from variables that begin with ``EARVOICE_GATEWAY_``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from earvoice.runtime.settings import ProcessSettings
from earvoice.runtime.tls import ChannelTls

SIGNING_KEY_BYTES = 32


class GatewaySettings(ProcessSettings):
    """The gateway's settings, read from its environment."""

    model_config = SettingsConfigDict(env_prefix="EARVOICE_GATEWAY_")

    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        8080, description="Port to listen on; 0 takes a free one."
    )
    tls_certificate_file: Path | None = Field(
        None, description="Our certificate with its chain, PEM; without one there is no TLS."
    )
    server: str = Field(
        "127.0.0.1:50051",
        min_length=1,
        description="Address of the policy service; several, separated by commas.",
    )
    server_tls_ca_file: Path | None = Field(
        None,
        description="Authorities, PEM, that the policy service's certificate must come from; "
        "without it the connection to it is not encrypted.",
    )
    server_tls_name: str = Field(
        "", description="Name that its certificate must bear; empty for that of the address."
    )
    server_token: SecretStr | None = Field(
        None,
        description="Bearer token shown to the policy service for callers who came in by a token "
        "of the gateway's own.",
    )
    token_key: SecretStr | None = Field(
        None,
        min_length=SIGNING_KEY_BYTES,
        description="Secret that signs the gateway's own access tokens; with one, nobody speaks "
        "or reads without a token of it (`earvoice gateway token`). Without one a caller's bearer "
        "token is handed to the policy service, and readers need none.",
    )
    allowed_origins: tuple[str, ...] = Field(
        (),
        description="Origins of pages, besides our own, whose scripts may come in; JSON list; "
        '`["*"]` for all.',
    )
    max_sockets: Annotated[int, Field(ge=1, le=100_000)] = Field(
        2_000, description="Connections that speak or read at once."
    )
    max_message_bytes: Annotated[int, Field(ge=1_024, le=16_777_216)] = Field(
        1_048_576, description="Longest message of a caller."
    )
    max_recording_bytes: Annotated[int, Field(ge=1_024, le=17_179_869_184)] = Field(
        268_435_456, description="Longest recording that a page may have decoded."
    )
    start_timeout_ms: Annotated[int, Field(ge=100, le=60_000)] = Field(
        5_000, description="Milliseconds a caller has to say what it wants."
    )
    kept_lines: Annotated[int, Field(ge=1, le=10_000)] = Field(
        2_000, description="Lines of a published stream, in each language, kept for late readers."
    )
    stream_linger_ms: Annotated[int, Field(ge=0, le=86_400_000)] = Field(
        600_000, description="Milliseconds that a published stream can be read after its end."
    )

    @property
    def server_tls(self) -> ChannelTls | None:
        if self.server_tls_ca_file is None:
            return None
        return ChannelTls(self.server_tls_ca_file, server_name=self.server_tls_name)
