"""The encoder service's settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from earvoice.runtime.settings import ModelSettings, Port


class EncoderSettings(ModelSettings):
    """The encoder's settings; `EARVOICE_ENCODER_PORT` and so on."""

    model_config = SettingsConfigDict(env_prefix="EARVOICE_ENCODER_")

    port: Port = Field(50052, description="Port to listen on; 0 takes a free one.")
    max_utterance_ms: Annotated[int, Field(ge=1_000, le=120_000)] = Field(
        40_000,
        description="Longest utterance in milliseconds; more audio is refused with OUT_OF_RANGE.",
    )
