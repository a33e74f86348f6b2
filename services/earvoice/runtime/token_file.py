"""A list of tokens in a file: whose each is, and its SHA-256 instead of itself."""

from __future__ import annotations

import re
from pathlib import Path

from earvoice.runtime.authentication import token_digest
from earvoice.runtime.watched_file import WatchedFile

_LINE = re.compile(r"(?P<tenant>\S+)\s+(?P<digest>[0-9a-fA-F]{64})")


class TokenFile:
    """Knows the tokens that a file lists; a change of the file counts at once.

    Args:
        path: of the file; see `parse_tokens`.

    Raises:
        OSError: it cannot be read.
        ValueError: a line is not a tenant and a digest.
    """

    def __init__(self, path: Path) -> None:
        self._file = WatchedFile(path, parse_tokens)

    async def tenant_of(self, token: str) -> str | None:
        """Return the tenant that the file names for a token, else None."""
        return self._file.content().get(token_digest(token))


def parse_tokens(text: str) -> dict[str, str]:
    """Return tenants by their tokens' digests.

    Args:
        text: lines of a tenant's name and the SHA-256 of a token in hex; a tenant may have
            several. ``#`` begins a comment.

    Raises:
        ValueError: a line is something else; the message has its number and not the line.
    """
    tenants: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        match = _LINE.fullmatch(content)
        if match is None:
            raise ValueError(f"line {number} is not a tenant and 64 hex digits of SHA-256")
        tenants[match["digest"].lower()] = match["tenant"]
    return tenants
