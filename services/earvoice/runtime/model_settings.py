"""Settings of the services that compute: which model, where, and in which numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from earvoice.runtime.settings import ServiceSettings

SHIPPED_MODEL = "earvoice-en-de"


def shipped_model_path() -> Path:
    """Return where the model that comes with EarVoice is: in a checkout, or in the package."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parents[1] / "models" / SHIPPED_MODEL
    return checkout if checkout.is_dir() else package / "shipped" / SHIPPED_MODEL


class ModelSettings(ServiceSettings):
    """What the encoder and the decoder service have in common."""

    idle_timeout_ms: Annotated[int, Field(ge=100, le=3_600_000)] = Field(
        3_600_000,
        description="Milliseconds without a command after which a session is ended; long, because "
        "nothing is asked of a service while a speaker is silent.",
    )
    model_path: Path = Field(
        default_factory=shipped_model_path,
        description="Checkpoint: a directory, or a `.pt` file of the papers' code.",
    )
    model_name: str = Field(
        "", max_length=100, description="Name to serve it by; empty takes the checkpoint's own."
    )
    source_language: str = Field(
        "und", description="Source language of a `.pt` checkpoint, which does not say it."
    )
    target_language: str = Field(
        "und", description="Target language of a `.pt` checkpoint without language tags."
    )
    compression: Literal["checkpoint", "none", "avg", "weighted", "softmax", "fixed"] = Field(
        "checkpoint",
        description="CTC compression; another than the checkpoint's makes another model, with a "
        "hash of its own.",
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
