"""Settings that every service has, and the check that no variable is misspelt."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

OTLP_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"

Settings = TypeVar("Settings", bound="ServiceSettings")


class SettingsError(Exception):
    """The configuration is wrong; the message names variable, value and what is allowed."""


class ServiceSettings(BaseSettings):
    """What every service can be told by its environment."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        0, description="Port to listen on; 0 takes a free one."
    )
    address_file: Path | None = Field(
        None, description="File that gets `host:port` once the service is ready."
    )
    session_limit: Annotated[int, Field(ge=1, le=10_000)] = Field(
        16, description="Sessions at once; one more is refused with RESOURCE_EXHAUSTED."
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
    reflection: bool = Field(default=False, description="Serve gRPC reflection.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least severe log line written."
    )
    trace_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0,
        description="Share of sessions traced, each whole; only where spans have somewhere to go: "
        "`OTEL_EXPORTER_OTLP_ENDPOINT` or `TRACE_FILE`. A caller's sampled trace is always joined.",
    )
    trace_file: Path | None = Field(
        None,
        description="File that gets spans as OTLP/JSON lines where no OTLP endpoint is set; past "
        "64 MiB it becomes `FILE.1`.",
    )
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        0, description="Port of the Prometheus endpoint `/metrics` on `HOST`; 0 for none."
    )


def load_settings(settings_class: type[Settings], **overrides: object) -> Settings:
    """Read the settings from the environment.

    Args:
        settings_class: the service's class; its ``env_prefix`` names the variables.
        overrides: values that outrank the environment.

    Raises:
        SettingsError: a value is out of range, a variable is misspelt, or one of OpenTelemetry's
            asks for what is not here.
    """
    protocol = os.environ.get(OTLP_PROTOCOL, "grpc")
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
        raise SettingsError("\n".join(_violations(error, prefix))) from error


def _unknown_variable(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"{name}: no such setting" + (f"; did you mean {near[0]}?" if near else "")


def _violations(error: ValidationError, prefix: str) -> list[str]:
    return [
        f"{prefix}{'.'.join(str(part) for part in item['loc'])}".upper()
        + f" = {item['input']!r}: {item['msg']}"
        for item in error.errors()
    ]
