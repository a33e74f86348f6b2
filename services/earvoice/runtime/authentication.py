"""Who calls: the token that a call shows, and whose it is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from earvoice.runtime.errors import UnauthenticatedError

AUTHORIZATION = "authorization"
_SCHEME = "bearer "


class Authenticator(Protocol):
    """Knows tokens."""

    async def tenant_of(self, token: str) -> str | None:
        """Return whose token it is; None if it is not known here.

        Raises:
            PermissionDeniedError: its bearer is known and may not come in.
            NotReadyError: it cannot be checked just now.
        """


class SharedSecrets:
    """Accepts any of some secrets; all who know one are the same, nameless tenant.

    Args:
        secrets: one at least.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._digests = frozenset(token_digest(secret) for secret in secrets)

    async def tenant_of(self, token: str) -> str | None:
        """Return the empty tenant for a known secret, else None."""
        return "" if token_digest(token) in self._digests else None


class AnyAuthenticator:
    """Asks several authenticators in turn.

    Args:
        authenticators: cheapest first.
    """

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self._authenticators = authenticators

    async def tenant_of(self, token: str) -> str | None:
        """Return the first tenant that one of them knows the token by."""
        for authenticator in self._authenticators:
            tenant = await authenticator.tenant_of(token)
            if tenant is not None:
                return tenant
        return None


def secrets_authenticator(secrets: Sequence[str]) -> SharedSecrets | None:
    """Return who knows these secrets; None, which lets in everybody, if there are none."""
    return SharedSecrets(secrets) if secrets else None


async def authenticate(authenticator: Authenticator, metadata: Mapping[str, str | bytes]) -> str:
    """Return the tenant of a call.

    Args:
        authenticator: knows tokens.
        metadata: the call's.

    Raises:
        UnauthenticatedError: it shows no token, or one that is not valid. It never says which of
            a token's parts was wrong: who guesses learns nothing.
    """
    shown = metadata.get(AUTHORIZATION, "")
    if not isinstance(shown, str) or not shown.lower().startswith(_SCHEME):
        raise UnauthenticatedError("a token is needed: metadata 'authorization: Bearer …'")
    tenant = await authenticator.tenant_of(shown[len(_SCHEME) :].strip())
    if tenant is None:
        raise UnauthenticatedError("the token is not valid, or not any more")
    return tenant


def token_digest(token: str) -> str:
    """Return a token's SHA-256 in hex: what is compared and stored, so that time tells nothing."""
    return hashlib.sha256(token.encode()).hexdigest()
