"""Files: written whole or not at all, read again whenever they have changed, known by a hash."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

Content = TypeVar("Content")
FileStamp = tuple[int, int, int]

_LOG = logging.getLogger("earvoice.runtime.files")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a path to write to; what is there at the end of the block replaces `path` at once.

    A reader sees the old file or the new one. Where the block fails, the old one stays.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def digest_of(files: Iterable[Path]) -> str:
    """Return SHA-256 in hexadecimal over the name and content of files, sorted by name."""
    total = hashlib.sha256()
    for path in sorted(files, key=lambda path: path.name):
        with path.open("rb") as file:
            total.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


class WatchedFile(Generic[Content]):
    """A file of a few kilobytes.

    A later content that cannot be used leaves the last one as it is.
    """

    def __init__(self, path: Path, parse: Callable[[str], Content]) -> None:
        self._path = path
        self._parse = parse
        self._seen = file_stamp(path)
        self._content = parse(path.read_text(encoding="utf8"))

    def content(self) -> Content:
        stamp = file_stamp(self._path)
        if stamp == self._seen:
            return self._content
        # One warning a change, not one a call.
        self._seen = stamp
        try:
            self._content = self._parse(self._path.read_text(encoding="utf8"))
        except (OSError, ValueError) as error:
            _LOG.warning("%s cannot be used, its last content stays: %s", self._path, error)
        else:
            _LOG.info("read again", extra={"file": str(self._path)})
        return self._content


def file_stamp(path: Path) -> FileStamp | None:
    """Return what changes with a file's content; None while it cannot be looked at."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
