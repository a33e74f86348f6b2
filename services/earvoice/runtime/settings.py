"""Settings that every service has, and the check that no variable is misspelt."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableError

from earvoice.runtime.authentication import Authenticator, is_showable, shared_secrets
from earvoice.runtime.tls import ServerTls, is_loopback

OTLP_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
SHORTEST_TOKEN_CHARACTERS = 16
SHIPPED_MODEL = "earvoice-en-x-small"

HIGHEST_PORT = 65_535
MOST_SESSIONS = 10_000
Port = Annotated[int, Field(ge=0, le=HIGHEST_PORT)]

_AnySettings = TypeVar("_AnySettings", bound=BaseSettings)


class SettingsError(Exception):
    """The configuration is wrong; the message names variable, value and what is allowed."""


class ProcessSettings(BaseSettings):
    """Settings of every process that serves others, read from its environment."""

    # A secret from a file may end with a line break, which is no part of it.
    model_config = SettingsConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: Port = Field(0, description="Port to listen on; 0 takes a free one.")
    address_file: Path | None = Field(
        None, description="File to write `host:port` to once the service is ready."
    )
    tls_certificate_file: Path | None = Field(
        None,
        description="PEM file of our certificate with its chain; without one, connections are not "
        "encrypted. Read again when it changes.",
    )
    tls_key_file: Path | None = Field(
        None, description="PEM file of its private key, without a password."
    )
    drain_grace_ms: Annotated[int, Field(ge=0, le=3_600_000)] = Field(
        10_000, description="Milliseconds that running sessions get to end after SIGTERM."
    )
    idle_timeout_ms: Annotated[int, Field(ge=100, le=3_600_000)] = Field(
        60_000, description="Milliseconds without a message after which a session is ended."
    )
    write_timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = Field(
        10_000, description="Milliseconds a caller may leave a response unread."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least severe level that is logged."
    )
    trace_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0,
        description="Share of sessions traced, each as a whole, if spans have a destination: "
        "`OTEL_EXPORTER_OTLP_ENDPOINT` or `TRACE_FILE`. A caller's sampled trace is always "
        "joined.",
    )
    trace_file: Path | None = Field(
        None,
        description="File for spans, as OTLP/JSON lines, if no OTLP endpoint is set; renamed to "
        "`FILE.1` past 64 MiB.",
    )
    metrics_port: Port = Field(
        0, description="Port of the Prometheus endpoint `/metrics` on `HOST`; 0 for none."
    )

    @field_validator("*", mode="before")
    @classmethod
    def _check_path(cls, value: object, info: ValidationInfo) -> object:
        # An empty variable would be read as the working folder.
        field = cls.model_fields[info.field_name or ""]
        if value == "" and Path in (field.annotation, *get_args(field.annotation)):
            raise ValueError("is empty; allowed: a path, or no such variable")
        return value

    @field_validator("host")
    @classmethod
    def _without_brackets(cls, host: str) -> str:
        return host.removeprefix("[").removesuffix("]")

    @classmethod
    def variable(cls, field: str) -> str:
        return f"{cls.model_config.get('env_prefix', '')}{field.upper()}"

    @classmethod
    def host_field(cls, port_field: str) -> str:
        """Return the field of the host that a port is on: the port's own, or all ports'."""
        own = port_field.replace("port", "host")
        return own if own in cls.model_fields else "host"

    @model_validator(mode="after")
    def _check_certificate(self) -> Self:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("TLS_CERTIFICATE_FILE and TLS_KEY_FILE are given together")
        return self


def _check_sendable(secret: SecretStr) -> SecretStr:
    if not is_showable(secret.get_secret_value()):
        raise ValueError("has characters other than printable ASCII, which no header can carry")
    return secret


SentSecret = Annotated[SecretStr, AfterValidator(_check_sendable)]
"""A secret that is sent in a header."""


class ServiceSettings(ProcessSettings):
    """Settings of every gRPC service, read from its environment."""

    health_port: Port = Field(
        0,
        description="Port on `HOST` that serves only health checks, always without TLS, for "
        "probes that have no certificate; 0 for none.",
    )
    tls_client_ca_file: Path | None = Field(
        None,
        description="PEM file of the authorities, one of which must have issued a caller's "
        "certificate (mutual TLS).",
    )
    connection_idle_ms: Annotated[int, Field(ge=1000, le=86_400_000)] = Field(
        600_000,
        description="Milliseconds without a call after which a connection is closed; a client "
        "opens another when it needs one.",
    )
    reflection: bool = Field(default=False, description="Serve gRPC reflection.")

    @property
    def tls(self) -> ServerTls | None:
        if self.tls_certificate_file is None or self.tls_key_file is None:
            return None
        return ServerTls(self.tls_certificate_file, self.tls_key_file, self.tls_client_ca_file)

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if self.tls_client_ca_file and self.tls is None:
            raise ValueError("TLS_CLIENT_CA_FILE needs TLS_CERTIFICATE_FILE and TLS_KEY_FILE")
        return self


def shipped_model_path() -> Path:
    """Return where the model that comes with EarVoice is: in a checkout, or in the package."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parents[1] / "models" / SHIPPED_MODEL
    return checkout if checkout.is_dir() else package / "shipped" / SHIPPED_MODEL


class ModelSettings(ServiceSettings):
    """Settings that the encoder and the decoder service share."""

    session_limit: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_SESSIONS)] = Field(
        "auto",
        description="Most concurrent sessions; one more is refused with RESOURCE_EXHAUSTED. "
        "`auto` measures at the start how many live sessions the engine can serve.",
    )
    target_busy_ratio: Annotated[float, Field(ge=0.05, le=1)] = Field(
        0.7,
        description="With `auto`, share of the engine's time that all live sessions may take "
        "together.",
    )
    access_token: SentSecret | None = Field(
        None,
        description="Secret of 16 characters or more that a caller must send; of several, "
        "separated by commas, each is accepted, so that it can be changed without a pause.",
    )
    allow_unauthenticated: bool = Field(
        default=False,
        description="Serve anyone who can reach `HOST`. Beyond loopback, a service starts only "
        "with this, an `ACCESS_TOKEN` or a `TLS_CLIENT_CA_FILE`.",
    )

    idle_timeout_ms: Annotated[int, Field(ge=100, le=3_600_000)] = Field(
        3_600_000,
        description="Milliseconds without a command after which a session is ended; long, because "
        "nothing is asked of a service while a speaker is silent.",
    )
    model_path: Path = Field(
        default_factory=shipped_model_path,
        description="Checkpoint: a directory in our format or that of `transformers`, or a `.pt` "
        "file of the papers' code.",
    )
    model_name: str = Field(
        "",
        max_length=100,
        description="Name to serve the model by; empty takes the checkpoint's own.",
    )
    source_language: str = Field(
        "und", description="Source language of a checkpoint that does not name one."
    )
    target_language: str = Field(
        "und",
        description="Target language of a checkpoint that neither names one nor has language tags.",
    )
    compression: Literal["checkpoint", "none", "avg", "weighted", "softmax", "fixed"] = Field(
        "checkpoint",
        description="CTC compression; any other than the checkpoint's makes a different model, "
        "with its own hash.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where the network computes; `auto` takes a GPU when there is one."
    )
    precision: Literal["fp32", "bf16", "fp16", "int8", "auto"] = Field(
        "auto",
        description="Number format of the matrix products; `auto` takes bf16 if the machine is "
        "fast in it (the decoder also if its layers are stored in 8 bits) and `earvoice precision` "
        "has shown that the model tolerates it, else fp32. "
        "`fp16` is for GPUs, `int8` for CPUs.",
    )
    torch_threads: Annotated[int, Field(ge=1, le=256)] = Field(
        1, description="Threads of one computation on the CPU."
    )

    @property
    def access_tokens(self) -> tuple[str, ...]:
        secrets = self.access_token.get_secret_value() if self.access_token else ""
        return tuple(part.strip() for part in secrets.split(",") if part.strip())

    @property
    def authenticator(self) -> Authenticator | None:
        return shared_secrets(self.access_tokens) if self.access_tokens else None

    @model_validator(mode="after")
    def _check_access(self) -> Self:
        if self.access_token is not None and not self.access_tokens:
            raise ValueError("ACCESS_TOKEN is blank; allowed: a secret, or no such variable")
        if any(len(token) < SHORTEST_TOKEN_CHARACTERS for token in self.access_tokens):
            raise ValueError(
                f"ACCESS_TOKEN is too short; allowed: {SHORTEST_TOKEN_CHARACTERS} characters "
                "or more"
            )
        guarded = self.access_tokens or self.tls_client_ca_file or self.allow_unauthenticated
        if not (guarded or is_loopback(self.host)):
            raise ValueError(
                f"HOST = {self.host!r} can be reached from other machines; allowed: a loopback "
                "address, or ACCESS_TOKEN, TLS_CLIENT_CA_FILE (mutual TLS) or "
                "ALLOW_UNAUTHENTICATED=true"
            )
        return self


def load_settings(settings_class: type[_AnySettings], **overrides: object) -> _AnySettings:
    """Read the settings from the environment."""
    # OpenTelemetry takes an empty variable for none.
    protocol = os.environ.get(OTLP_PROTOCOL) or "grpc"
    if protocol != "grpc":
        raise SettingsError(f"{OTLP_PROTOCOL} = {protocol!r} is not implemented; allowed: grpc")
    prefix = settings_class.model_config.get("env_prefix", "")
    known = {f"{prefix}{name}".upper() for name in settings_class.model_fields}
    unknown = sorted(name for name in os.environ if name.startswith(prefix) and name not in known)
    if unknown:
        raise SettingsError("\n".join(_unknown_variable(name, known) for name in unknown))
    try:
        return settings_class(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        raise SettingsError("\n".join(_violations(error, settings_class))) from error
    except UnreadableError as error:
        (name,) = re.findall(r'field "(\w+)"', str(error))
        raise SettingsError(f"{prefix}{name}".upper() + ": is not JSON; a list must be") from error


def address_of(host: str, port: int) -> str:
    """Return ``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _unknown_variable(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"{name}: no such setting" + (f"; did you mean {near[0]}?" if near else "")


def _violations(error: ValidationError, settings_class: type[BaseSettings]) -> list[str]:
    prefix = settings_class.model_config.get("env_prefix", "")
    found: dict[str, list[str]] = {}
    for item in error.errors():
        # An error about several settings has no location; its message names them.
        name = str(item["loc"][0]) if item["loc"] else ""
        found.setdefault(_shown_setting(settings_class, name, item["input"]), []).append(
            item["msg"]
        )
    return [f"{prefix}{shown}: {' or '.join(messages)}" for shown, messages in found.items()]


def _shown_setting(settings_class: type[BaseSettings], name: str, value: object) -> str:
    if not name:
        return "*"
    field = settings_class.model_fields.get(name)
    is_secret = field is not None and _has_secret(field.annotation)
    return f"{name.upper()} = {'(not shown)' if is_secret else repr(value)}"


def _has_secret(annotation: object) -> bool:
    return annotation is SecretStr or any(map(_has_secret, get_args(annotation)))
