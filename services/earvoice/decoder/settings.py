"""The decoder service's settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from earvoice.runtime.settings import ModelSettings, Port


class DecoderSettings(ModelSettings):
    """The decoder's settings; `EARVOICE_DECODER_PORT` and so on."""

    model_config = SettingsConfigDict(env_prefix="EARVOICE_DECODER_")

    port: Port = Field(50053, description="Port to listen on; 0 takes a free one.")
    max_tokens: Annotated[int, Field(ge=2, le=65_536)] = Field(
        2048, description="Most tokens in one hypothesis, prefix included."
    )
    max_states: Annotated[int, Field(ge=1, le=65_536)] = Field(
        4096, description="Most encoder states in one revision."
    )
    outbox_events: Annotated[int, Field(ge=2, le=10_000)] = Field(
        64, description="Number of unread answers at which a session's generation pauses."
    )
