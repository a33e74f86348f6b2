"""Which subcommands there are; none is imported before it is asked for."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from earvoice.cli.command import Command, CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping

ENTRY_POINT_GROUP = "earvoice.commands"

# Name, module in this package, and what --help says of it.
_BUILT_IN = (
    ("up", "run all services on this machine"),
    ("serve", "run one service in this process"),
    ("translate", "translate recordings, or raw audio from standard input"),
    ("models", "list what a server can be asked for"),
    ("presets", "list the papers' settings by name"),
    ("demo", "translate a recording at real time and show where the time goes"),
    ("latency", "read the services' spans: where the time of released words went"),
)
# The module that shows whether an extra is installed.
_EXTRA_PROBES = {"encoder": "torch", "decoder": "torch", "cli": "soundfile"}


@dataclass(frozen=True)
class CommandEntry:
    """A subcommand that can be loaded.

    Attributes:
        name: as it is typed.
        summary: one line.
        origin: where its ``Command`` is.
    """

    name: str
    summary: str
    origin: EntryPoint

    def load(self) -> Command:
        """Import the command.

        Raises:
            CommandError: something it needs is not installed.
        """
        try:
            command = self.origin.load()
        except ImportError as error:
            extra = ",".join(self.origin.extras) or "lab"
            raise CommandError(
                f"{self.name} needs {error.name}, which is not installed: "
                f"pip install 'earvoice[{extra}]'"
            ) from error
        if not isinstance(command, Command):
            raise CommandError(f"{self.origin.value} is no command, but a {type(command).__name__}")
        return command


def find_commands() -> Mapping[str, CommandEntry]:
    """Return the subcommands by name: ours, then those of installed packages."""
    ours = [
        CommandEntry(
            name, summary, EntryPoint(name, f"earvoice.cli.{name}:COMMAND [cli]", ENTRY_POINT_GROUP)
        )
        for name, summary in _BUILT_IN
    ]
    others = [
        CommandEntry(point.name, f"added by {point.module}", point)
        for point in entry_points(group=ENTRY_POINT_GROUP)
    ]
    return {entry.name: entry for entry in (*others, *ours)}


def require_extra(extra: str) -> None:
    """Check that an extra of this distribution is installed.

    Raises:
        CommandError: it is not; the message names it.
    """
    module = _EXTRA_PROBES.get(extra)
    if module is not None and importlib.util.find_spec(module) is None:
        raise CommandError(f"{module} is not installed: pip install 'earvoice[{extra}]'")
