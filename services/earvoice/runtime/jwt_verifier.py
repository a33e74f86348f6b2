"""JSON Web Tokens (RFC 7519), checked by PyJWT. Imported only where they are accepted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import jwt

from earvoice.runtime.authentication import Authenticator
from earvoice.runtime.engine import to_its_end
from earvoice.runtime.errors import NotReadyError, PermissionDeniedError
from earvoice.runtime.files import watched_file

# Public keys only: with a shared secret, or with none, whoever checks tokens could make them.
RSA_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
ALGORITHMS = [*RSA_ALGORITHMS, "ES256", "ES384", "ES512", "EdDSA"]
CLOCK_LEEWAY_S = 30
KEY_LIFESPAN_S = 3600
FETCH_TIMEOUT_S = 5.0
RETRY_AFTER_MS = 5000

_LOG = logging.getLogger("earvoice.runtime.jwt_verifier")

FindKey = Callable[[str], Awaitable[jwt.PyJWK | None]]
"""Returns the key with an id; None if there is none."""


def jwt_verifier(find_key: FindKey, issuer: str, audience: str, tenant_claim: str) -> Authenticator:
    """Accept tokens that an issuer has signed for an audience; a claim names their tenant."""

    async def tenant_of(token: str) -> str | None:
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
            key = await find_key(key_id) if isinstance(key_id, str) else None
            if key is None:
                return None
            claims = jwt.decode(
                token,
                # As PyJWK, one that names no algorithm would be for RS256 alone.
                key.key if _fits_all_rsa(key) else key,
                algorithms=RSA_ALGORITHMS if _fits_all_rsa(key) else ALGORITHMS,
                issuer=issuer,
                audience=audience,
                leeway=CLOCK_LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.InvalidTokenError:
            return None
        tenant = claims.get(tenant_claim)
        if not isinstance(tenant, str) or not tenant:
            raise PermissionDeniedError(f"the token has no claim {tenant_claim!r}")
        return tenant

    return tenant_of


def _fits_all_rsa(key: jwt.PyJWK) -> bool:
    # Nothing public says whether the algorithm is the key's own or PyJWT's guess.
    return key.key_type == "RSA" and not key._jwk_data.get("alg")  # noqa: SLF001


def key_file(path: Path) -> FindKey:
    """Find keys in a JSON Web Key Set file; changes to the file take effect at once."""
    key_set = watched_file(path, _parse_keys)

    async def find(key_id: str) -> jwt.PyJWK | None:
        return jwt.PyJWKClient.match_kid(key_set().keys, key_id)

    return find


class KeyUrl:
    """A JSON Web Key Set from a URL; kept for an hour, and fetched again for an unknown key."""

    def __init__(self, url: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._client = jwt.PyJWKClient(url, lifespan=KEY_LIFESPAN_S, timeout=FETCH_TIMEOUT_S)
        self._clock_s = clock_s
        self._fetching = asyncio.Lock()
        self._retry_at_s = clock_s()

    async def find(self, key_id: str) -> jwt.PyJWK | None:
        known = self._known(key_id)
        if known is not None:
            # Not behind callers that wait for the issuer: anybody can name a nonexistent key.
            return known
        async with self._fetching:
            known = self._known(key_id)
            if known is not None:
                return known
            if self._clock_s() < self._retry_at_s:
                raise _no_keys()
            # The thread goes on: else callers that come and go would leave one each.
            return await to_its_end(self._fetch(key_id))

    async def _fetch(self, key_id: str) -> jwt.PyJWK | None:
        try:
            return await asyncio.to_thread(self._client.get_signing_key, key_id)
        except (jwt.PyJWKClientError, jwt.PyJWKSetError, OSError, ValueError) as error:
            if type(error) is jwt.PyJWKClientError and self._keys():
                return None  # there are keys, but not this one
            # Else each waiting caller in turn would wait for an issuer that is down.
            self._retry_at_s = self._clock_s() + RETRY_AFTER_MS / 1000
            _LOG.warning("no keys from %s: %s", self._client.uri, error)
            raise _no_keys() from error

    def _known(self, key_id: str) -> jwt.PyJWK | None:
        return jwt.PyJWKClient.match_kid(self._keys(), key_id)

    def _keys(self) -> list[jwt.PyJWK]:
        cache = self._client.jwk_set_cache
        kept = cache.get() if cache is not None else None
        return [key for key in kept.keys if key.public_key_use in ("sig", None)] if kept else []


def _no_keys() -> NotReadyError:
    return NotReadyError("tokens cannot be checked just now", retry_after_ms=RETRY_AFTER_MS)


def _parse_keys(text: str) -> jwt.PyJWKSet:
    try:
        return jwt.PyJWKSet.from_json(text)
    except jwt.PyJWTError as error:
        raise ValueError(f"no JSON Web Key Set: {error}") from error
