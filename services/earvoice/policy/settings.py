"""The policy service's settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from earvoice.runtime.settings import ServiceSettings


class PolicySettings(ServiceSettings):
    """What the policy service can be told by its environment."""

    model_config = SettingsConfigDict(env_prefix="EARVOICE_POLICY_", frozen=True, extra="forbid")

    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        50051, description="Port to listen on; 0 takes a free one."
    )
    encoder_target: str = Field(
        "127.0.0.1:50052", min_length=1, description="gRPC target of the encoder service."
    )
    decoder_target: str = Field(
        "127.0.0.1:50053", min_length=1, description="gRPC target of the decoder service."
    )
    max_buffered_audio_ms: Annotated[int, Field(ge=1000, le=120_000)] = Field(
        30_000,
        description="Milliseconds of audio a session holds that no segment has taken; "
        "past it the client's audio waits in the network.",
    )
    max_session_ms: Annotated[int, Field(ge=1000, le=86_400_000)] = Field(
        14_400_000, description="Milliseconds of audio after which a session is ended."
    )
