"""Settings of the gateway, from variables that begin with ``EARVOICE_GATEWAY_``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from earvoice.runtime.settings import Port, ProcessSettings, SentSecret
from earvoice.runtime.tls import ChannelTls

SIGNING_KEY_BYTES = 32
MOST_LANGUAGES = 16
"""Of one speaker: each is a session of its own."""


class GatewaySettings(ProcessSettings):
    """The gateway's settings, read from its environment."""

    model_config = SettingsConfigDict(env_prefix="EARVOICE_GATEWAY_")

    port: Port = Field(8080, description="Port to listen on; 0 takes a free one.")
    tls_certificate_file: Path | None = Field(
        None, description="PEM file of our certificate with its chain; without one there is no TLS."
    )
    server: str = Field(
        "127.0.0.1:50051",
        min_length=1,
        description="Address of the policy service; several, separated by commas.",
    )
    server_tls_ca_file: Path | None = Field(
        None,
        description="PEM file of the authorities that must have issued the policy service's "
        "certificate; without it, the connection to it is not encrypted.",
    )
    server_tls_name: str = Field(
        "",
        description="Name in the policy service's certificate; empty for the host of its address.",
    )
    server_token: SentSecret | None = Field(
        None,
        description="Bearer token sent to the policy service for callers whom the gateway itself "
        "lets in: with one of its own tokens, or by telephone.",
    )
    token_key: SecretStr | None = Field(
        None,
        min_length=SIGNING_KEY_BYTES,
        description="Secret that signs the gateway's own access tokens (`earvoice gateway "
        "token`); with one, speakers and readers need such a token. Without one, a caller's "
        "bearer token is passed on to the policy service, and readers need none.",
    )
    twilio_auth_token: SecretStr | None = Field(
        None,
        min_length=1,
        description="Auth token of a Twilio account: with it, calls must be signed by that "
        "account, and need no access token.",
    )
    twilio_address: str = Field(
        "",
        pattern=r"^(wss://\S+)?$",
        description="Address that Twilio is given for its calls, `wss://…/v1/twilio`: it signs "
        "that.",
    )
    audiosocket_port: Port = Field(
        0, description="Port for calls by Asterisk's AudioSocket; 0 takes none."
    )
    audiosocket_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address of that port. The protocol has neither tokens nor encryption: whoever "
        "reaches it may speak.",
    )
    audiosocket_languages: tuple[str, ...] = Field(
        ("en",),
        min_length=1,
        max_length=MOST_LANGUAGES,
        description="Languages of these calls' captions, each once; a JSON list.",
    )
    allowed_origins: tuple[str, ...] = Field(
        (),
        description="Origins of pages, besides our own, whose scripts may connect; a JSON list, "
        '`["*"]` for all.',
    )
    max_sockets: Annotated[int, Field(ge=1, le=100_000)] = Field(
        2_000, description="Most concurrent connections of speakers and readers."
    )
    max_message_bytes: Annotated[int, Field(ge=1_024, le=16_777_216)] = Field(
        1_048_576, description="Longest message from a caller."
    )
    max_recording_bytes: Annotated[int, Field(ge=1_024, le=17_179_869_184)] = Field(
        268_435_456, description="Longest recording that a page may send for decoding."
    )
    start_timeout_ms: Annotated[int, Field(ge=100, le=60_000)] = Field(
        5_000, description="Milliseconds that a caller has to send its start message."
    )
    kept_lines: Annotated[int, Field(ge=1, le=10_000)] = Field(
        2_000, description="Lines of a published stream kept for late readers, in each language."
    )
    stream_linger_ms: Annotated[int, Field(ge=0, le=86_400_000)] = Field(
        600_000, description="Milliseconds for which a published stream can be read after its end."
    )

    @model_validator(mode="after")
    def _check_server(self) -> Self:
        if self.server_tls_name and self.server_tls_ca_file is None:
            raise ValueError("SERVER_TLS_NAME needs SERVER_TLS_CA_FILE")
        knows_callers = self.token_key or self.twilio_auth_token or self.audiosocket_port
        if self.server_token and not knows_callers:
            raise ValueError(
                "SERVER_TOKEN needs TOKEN_KEY, TWILIO_AUTH_TOKEN or AUDIOSOCKET_PORT: it is sent "
                "only for callers whom the gateway itself lets in"
            )
        if (self.twilio_auth_token is None) != (not self.twilio_address):
            raise ValueError("TWILIO_AUTH_TOKEN and TWILIO_ADDRESS are given together")
        languages = self.audiosocket_languages
        if "" in languages or len({*languages}) < len(languages):
            raise ValueError("AUDIOSOCKET_LANGUAGES are tags, each once")
        return self

    @property
    def server_tls(self) -> ChannelTls | None:
        if self.server_tls_ca_file is None:
            return None
        return ChannelTls(self.server_tls_ca_file, server_name=self.server_tls_name)
