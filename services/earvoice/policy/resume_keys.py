"""The keys that resume tokens are signed with."""

from __future__ import annotations

import base64
import binascii
import secrets

SHORTEST_KEY_BYTES = 32


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
