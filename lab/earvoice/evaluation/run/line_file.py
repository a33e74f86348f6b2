"""Files that grow line by line, and may be torn by a kill."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def drop_torn_line(path: Path) -> None:
    """Drop a last line that a killed run could not finish; the file need not be there."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole != len(content):
        with path.open("r+b") as file:
            file.truncate(whole)
