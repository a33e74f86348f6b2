"""The policy service's settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from earvoice.policy.access_settings import AccessSettings
from earvoice.policy.backend_target import ALLOWED, parse_target
from earvoice.policy.resume_settings import ResumeSettings


class PolicySettings(AccessSettings, ResumeSettings):
    """What the policy service can be told by its environment."""

    model_config = SettingsConfigDict(env_prefix="EARVOICE_POLICY_", frozen=True, extra="forbid")

    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        50051, description="Port to listen on; 0 takes a free one."
    )
    session_limit: Annotated[int, Field(ge=1, le=10_000)] = Field(
        64, description="Sessions at once; one more is refused with RESOURCE_EXHAUSTED."
    )
    encoder_target: str = Field(
        "127.0.0.1:50052",
        min_length=1,
        description=f"Replicas of the encoder: {ALLOWED}. A name given as `dns:///` stands for all "
        "its addresses, looked up again every few seconds.",
    )
    decoder_target: str = Field(
        "127.0.0.1:50053", min_length=1, description="Replicas of the decoder, likewise."
    )
    answer_timeout_ms: Annotated[int, Field(ge=100, le=60_000)] = Field(
        3000,
        description="Milliseconds without an answer after which a replica is left that does not "
        "tell its health either: it is stopped or cut off.",
    )
    slow_answer_timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = Field(
        30_000,
        description="The same for a replica that tells its health: it is slow.",
    )
    replacement_wait_ms: Annotated[int, Field(ge=0, le=600_000)] = Field(
        10_000,
        description="Milliseconds to wait for another replica when one is lost, before the session "
        "is ended with BACKEND_UNAVAILABLE.",
    )
    max_buffered_audio_ms: Annotated[int, Field(ge=1000, le=120_000)] = Field(
        30_000,
        description="Milliseconds of audio a session holds that no segment has taken; "
        "past it the client's audio waits in the network.",
    )
    max_buffered_audio_bytes: Annotated[int, Field(ge=65_536, le=1_073_741_824)] = Field(
        8_388_608, description="The same in bytes; the smaller of both counts."
    )
    max_session_ms: Annotated[int, Field(ge=1000, le=86_400_000)] = Field(
        14_400_000, description="Milliseconds of audio after which a session is ended."
    )

    @field_validator("encoder_target", "decoder_target")
    @classmethod
    def _check_target(cls, target: str) -> str:
        parse_target(target)
        return target
