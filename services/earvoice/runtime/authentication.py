"""Who calls: the token that a call carries, and the tenant that it belongs to."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

from earvoice.runtime.errors import UnauthenticatedError
from earvoice.runtime.files import watched_file

AUTHORIZATION = "authorization"
_SCHEME = "bearer "
_TOKEN_LINE = re.compile(r"(?P<tenant>\S+)\s+(?P<digest>[0-9a-fA-F]{64})")
_TENANT: ContextVar[str] = ContextVar("earvoice_tenant", default="")


Authenticator = Callable[[str], Awaitable[str | None]]
"""Returns the tenant of a token; None if the token is not known here. Raises for a known caller
that is not allowed."""


def is_showable(token: str) -> bool:
    """Say whether a header can carry a token: it must be printable ASCII."""
    return token.isascii() and token.isprintable()


def shared_secrets(secrets: Iterable[str]) -> Authenticator:
    """Accept any of these secrets; all who know one are the same tenant, the empty one."""
    digests = frozenset(token_digest(secret) for secret in secrets)

    async def tenant_of(token: str) -> str | None:
        return "" if token_digest(token) in digests else None

    return tenant_of


def token_file(path: Path) -> Authenticator:
    """Accept the tokens that a file lists; changes to the file take effect at once."""
    tenants = watched_file(path, parse_tokens)

    async def tenant_of(token: str) -> str | None:
        return tenants().get(token_digest(token))

    return tenant_of


def first_to_know(authenticators: Sequence[Authenticator]) -> Authenticator:
    """Ask several in turn, the cheapest first."""

    async def tenant_of(token: str) -> str | None:
        for authenticator in authenticators:
            tenant = await authenticator(token)
            if tenant is not None:
                return tenant
        return None

    return tenant_of


async def authenticate(authenticator: Authenticator, metadata: Mapping[str, str | bytes]) -> str:
    shown = metadata.get(AUTHORIZATION, "")
    if not isinstance(shown, str) or not shown.lower().startswith(_SCHEME):
        raise UnauthenticatedError("a token is needed: metadata 'authorization: Bearer …'")
    tenant = await authenticator(shown[len(_SCHEME) :].strip())
    if tenant is None:
        raise UnauthenticatedError("the token is not valid or has expired")
    return tenant


def current_tenant() -> str:
    """Return the tenant whose call this task serves; empty without authentication."""
    return _TENANT.get()


def set_tenant(tenant: str) -> None:
    _TENANT.set(tenant)


def token_digest(token: str) -> str:
    """Return a token's SHA-256 in hex: this is compared and stored, so timing reveals nothing."""
    return hashlib.sha256(token.encode()).hexdigest()


def parse_tokens(text: str) -> dict[str, str]:
    """Return tenants by their tokens' digests.

    Args:
        text: lines of a tenant's name and the SHA-256 of a token in hex; a tenant may have
            several. ``#`` begins a comment.
    """
    tenants: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        match = _TOKEN_LINE.fullmatch(content)
        if match is None:
            raise ValueError(f"line {number} is not a tenant and 64 hex digits of SHA-256")
        tenants[match["digest"].lower()] = match["tenant"]
    return tenants
