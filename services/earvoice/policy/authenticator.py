"""The public API's authenticator, as the settings want it."""

from __future__ import annotations

from earvoice.policy.access_settings import AccessSettings
from earvoice.runtime.authentication import AnyAuthenticator, Authenticator
from earvoice.runtime.settings import SettingsError
from earvoice.runtime.token_file import TokenFile


def build_authenticator(settings: AccessSettings) -> Authenticator | None:
    """Return who knows the callers; None where everybody is let in.

    Raises:
        SettingsError: a file cannot be used, or JWTs need an extra that is not installed.
    """
    known: list[Authenticator] = []
    try:
        if settings.auth_tokens_file:
            known.append(TokenFile(settings.auth_tokens_file))
        if settings.checks_jwts:
            known.append(_jwt_verifier(settings))
    except (OSError, ValueError) as error:
        raise SettingsError(f"tokens cannot be checked: {error}") from error
    return AnyAuthenticator(known) if known else None


def _jwt_verifier(settings: AccessSettings) -> Authenticator:
    try:
        # It takes long to import, and few need it.
        from earvoice.runtime.jwt_verifier import JwtVerifier, KeyFile, KeyUrl  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError("JWTs need the extra: pip install 'earvoice[auth]'") from error
    keys = (
        KeyFile(settings.auth_jwks_file)
        if settings.auth_jwks_file
        else KeyUrl(settings.auth_jwks_url)
    )
    return JwtVerifier(
        keys, settings.auth_jwt_issuer, settings.auth_jwt_audience, settings.auth_jwt_tenant_claim
    )
