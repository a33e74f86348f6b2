"""What the encoder service can be told by its environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from earvoice.runtime.settings import ServiceSettings

SHIPPED_MODEL = "earvoice-en-de"


def shipped_model_path() -> Path:
    """Where the model that comes with the project is, in a checkout or an installed package."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parents[1] / "models" / SHIPPED_MODEL
    return checkout if checkout.is_dir() else package / "shipped" / SHIPPED_MODEL


class EncoderSettings(ServiceSettings):
    """The encoder's settings; `EARVOICE_ENCODER_PORT` and so on."""

    model_config = SettingsConfigDict(env_prefix="EARVOICE_ENCODER_", frozen=True, extra="forbid")

    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        50052, description="Port to listen on; 0 takes a free one."
    )
    model_path: Path = Field(
        default_factory=shipped_model_path,
        description="Checkpoint: a directory, or a `.pt` file of the papers' code.",
    )
    model_name: str = Field(
        "", max_length=100, description="Name to serve it by; empty takes the checkpoint's own."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where the network computes; `auto` takes a GPU when there is one."
    )
    precision: Literal["fp32", "bf16", "auto"] = Field(
        "fp32",
        description="Number format of the matrix products; `auto` takes bf16 where it is fast.",
    )
    torch_threads: Annotated[int, Field(ge=1, le=256)] = Field(
        1, description="Threads of one computation on the CPU."
    )
    max_utterance_ms: Annotated[int, Field(ge=1_000, le=120_000)] = Field(
        40_000, description="Longest utterance; more audio is refused with OUT_OF_RANGE."
    )
