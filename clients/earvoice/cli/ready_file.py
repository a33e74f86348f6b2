"""The file that tells others where the services listen."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from earvoice.cli.command import CommandError
from earvoice.runtime.server import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def clear(path: Path) -> None:
    """Remove what an earlier run left, so that nobody takes its addresses for ours.

    Raises:
        CommandError: the folder does not exist.
    """
    if not path.parent.is_dir():
        raise CommandError(f"--ready-file {path}: there is no folder {path.parent}")
    path.unlink(missing_ok=True)


@contextmanager
def publish(path: Path, addresses: Mapping[str, str]) -> Iterator[None]:
    """Keep a JSON object of ``service: "host:port"`` at ``path``; ``address`` is the public one.

    It appears whole or not at all, and goes when the services stop.
    """
    content = {"address": addresses["policy"], **addresses}
    write_atomically(path, json.dumps(content, indent=2) + "\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
