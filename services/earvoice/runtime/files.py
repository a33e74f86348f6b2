"""Files: written whole or not at all, read again whenever they have changed, known by a hash."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

Content = TypeVar("Content")
FileStamp = tuple[int, int, int]

_LOG = logging.getLogger("earvoice.runtime.files")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a path to write to; at the end of the block its file replaces `path` atomically.

    A reader sees the old file or the new one. If the block fails, the old one stays.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def drop_torn_line(path: Path) -> None:
    """Drop a last line that a killed run could not finish; the file need not be there."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole != len(content):
        with path.open("r+b") as file:
            file.truncate(whole)


def digest_of(files: Iterable[Path]) -> str:
    """Return SHA-256 in hexadecimal over the name and content of files, sorted by name."""
    total = hashlib.sha256()
    for path in sorted(files, key=lambda path: path.name):
        with path.open("rb") as file:
            total.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def watched_file(path: Path, parse: Callable[[str], Content]) -> Callable[[], Content]:
    """Read a file of a few kilobytes; return a function that gives its content, reread on change.

    If the new content cannot be used, the last one stays.
    """
    seen = file_stamp(path)
    content = parse(path.read_text(encoding="utf8"))

    def read() -> Content:
        nonlocal seen, content
        stamp = file_stamp(path)
        if stamp == seen:
            return content
        # One warning a change, not one a call.
        seen = stamp
        try:
            content = parse(path.read_text(encoding="utf8"))
        except (OSError, ValueError) as error:
            _LOG.warning("%s cannot be used, its last content stays: %s", path, error)
        else:
            _LOG.info("read again", extra={"file": str(path)})
        return content

    return read


def file_stamp(path: Path) -> FileStamp | None:
    """Return what changes with a file's content; None while the file cannot be accessed."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
