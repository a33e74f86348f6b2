"""Settings of the services that compute: which model, where, and in which numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from earvoice.runtime.address import is_loopback
from earvoice.runtime.settings import ServiceSettings

SHORTEST_TOKEN_CHARACTERS = 16
SHIPPED_MODEL = "earvoice-en-x-small"


def shipped_model_path() -> Path:
    """Return where the model that comes with EarVoice is: in a checkout, or in the package."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parents[1] / "models" / SHIPPED_MODEL
    return checkout if checkout.is_dir() else package / "shipped" / SHIPPED_MODEL


class ModelSettings(ServiceSettings):
    """What the encoder and the decoder service have in common."""

    session_limit: Literal["auto"] | Annotated[int, Field(ge=1, le=10_000)] = Field(
        "auto",
        description="Sessions at once; one more is refused with RESOURCE_EXHAUSTED. `auto` "
        "measures at the start how many live sessions the engine bears.",
    )
    target_busy_ratio: Annotated[float, Field(ge=0.05, le=1)] = Field(
        0.7,
        description="Share of the engine's time that live sessions may take together, for `auto`.",
    )
    access_token: SecretStr | None = Field(
        None,
        description="Secret of 16 characters or more that a caller must show; several, separated "
        "by commas, are all accepted, so that it can be changed without a pause.",
    )
    allow_strangers: bool = Field(
        default=False,
        description="Serve anybody who reaches `HOST`. Beyond loopback a service starts only with "
        "this, an `ACCESS_TOKEN` or a `TLS_CLIENT_CA_FILE`.",
    )

    idle_timeout_ms: Annotated[int, Field(ge=100, le=3_600_000)] = Field(
        3_600_000,
        description="Milliseconds without a command after which a session is ended; long, because "
        "nothing is asked of a service while a speaker is silent.",
    )
    model_path: Path = Field(
        default_factory=shipped_model_path,
        description="Checkpoint: a directory of our own or of `transformers`, or a `.pt` file of "
        "the papers' code.",
    )
    model_name: str = Field(
        "", max_length=100, description="Name to serve it by; empty takes the checkpoint's own."
    )
    source_language: str = Field(
        "und", description="Source language of a checkpoint that does not say it."
    )
    target_language: str = Field(
        "und",
        description="Target language of a checkpoint that neither says it nor has language tags.",
    )
    compression: Literal["checkpoint", "none", "avg", "weighted", "softmax", "fixed"] = Field(
        "checkpoint",
        description="CTC compression; another than the checkpoint's makes another model, with a "
        "hash of its own.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where the network computes; `auto` takes a GPU when there is one."
    )
    precision: Literal["fp32", "bf16", "int8", "auto"] = Field(
        "auto",
        description="Number format of the matrix products; `auto` takes bf16 where the machine is "
        "fast in it and `earvoice precision` has shown that the model bears it, else fp32.",
    )
    torch_threads: Annotated[int, Field(ge=1, le=256)] = Field(
        1, description="Threads of one computation on the CPU."
    )

    @property
    def access_tokens(self) -> tuple[str, ...]:
        """What a caller may show; empty if it need not show anything."""
        secrets = self.access_token.get_secret_value() if self.access_token else ""
        return tuple(part.strip() for part in secrets.split(",") if part.strip())

    @model_validator(mode="after")
    def _check_access(self) -> Self:
        if self.access_token and not self.access_tokens:
            raise ValueError("ACCESS_TOKEN is blank; allowed: a secret, or no such variable")
        if any(len(token) < SHORTEST_TOKEN_CHARACTERS for token in self.access_tokens):
            raise ValueError(
                f"ACCESS_TOKEN is too short; allowed: {SHORTEST_TOKEN_CHARACTERS} characters "
                "or more"
            )
        guarded = self.access_tokens or self.tls_client_ca_file or self.allow_strangers
        if not (guarded or is_loopback(self.host)):
            raise ValueError(
                f"HOST = {self.host!r} is open to strangers; allowed: a loopback address, or "
                "ACCESS_TOKEN, TLS_CLIENT_CA_FILE (mutual TLS) or ALLOW_STRANGERS=true"
            )
        return self
