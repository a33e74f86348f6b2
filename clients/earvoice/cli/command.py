"""What a subcommand is.

Other packages add theirs by an entry point in the group ``earvoice.commands`` that names a
``Command``, followed by the extra it needs: ``train = "earvoice.training.command:COMMAND [lab]"``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from earvoice.cli.exit_code import ExitCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


@dataclass(frozen=True)
class Command:
    """One subcommand.

    Attributes:
        add_arguments: declares its arguments.
        run: does it and returns the exit status.
    """

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class CommandError(Exception):
    """A command that cannot go on; the message is for the person who typed it.

    Args:
        message: what is wrong and what to do.
        exit_code: the command's exit status.
    """

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code
