"""What interrupted sessions need to go on."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from earvoice.policy.resume.seal import parse_keys
from earvoice.runtime.settings import ServiceSettings


class ResumeSettings(ServiceSettings):
    """Part of the policy service's settings."""

    resume_keys: SecretStr | None = Field(
        None,
        description="Keys that sign resume tokens, 32 bytes or more each, in hex or base64, "
        "separated by commas: the first signs, all are accepted. The same for all replicas; "
        "without any, a session can be resumed only where it was, and not after a restart.",
    )
    resume_lifetime_ms: Annotated[int, Field(ge=1000, le=86_400_000)] = Field(
        600_000, description="Milliseconds after which a resume token is refused."
    )

    @field_validator("resume_keys")
    @classmethod
    def _check_keys(cls, keys: SecretStr | None) -> SecretStr | None:
        if keys is not None:
            parse_keys(keys.get_secret_value())
        return keys
