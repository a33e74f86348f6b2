"""Signs what leaves the service and must come back as it was."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

SHORTEST_KEY_BYTES = 32
SIGNATURE_BYTES = 32


class ForgedError(Exception):
    """The bytes were not signed with any of the keys."""


class Seal:
    """Signs with HMAC-SHA256 (RFC 2104): the first key signs, all are accepted."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys

    def sign(self, content: bytes) -> bytes:
        return _signature(self._keys[0], content) + content

    def verify(self, signed: bytes) -> bytes:
        signature, content = signed[:SIGNATURE_BYTES], signed[SIGNATURE_BYTES:]
        if not any(hmac.compare_digest(_signature(key, content), signature) for key in self._keys):
            raise ForgedError
        return content


def random_key() -> bytes:
    return secrets.token_bytes(SHORTEST_KEY_BYTES)


def parse_keys(text: str) -> list[bytes]:
    """Return the keys in a list.

    Args:
        text: keys in hex or base64, separated by commas.
    """
    return [_parse_key(number, part.strip()) for number, part in enumerate(text.split(","), 1)]


def _parse_key(number: int, text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        try:
            key = base64.b64decode(text, validate=True)
        except binascii.Error:
            raise ValueError(f"key {number} is neither hex nor base64") from None
    if len(key) < SHORTEST_KEY_BYTES:
        raise ValueError(
            f"key {number} has {len(key)} bytes; allowed: {SHORTEST_KEY_BYTES} or more"
        )
    return key


def _signature(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, hashlib.sha256)
