"""Finding subcommands."""

import argparse
import sys
from importlib.metadata import EntryPoint

import pytest

from earvoice.cli.command import Command, CommandError
from earvoice.cli.registry import CommandEntry, find_commands, require_extra


def entry(value):
    """Return a subcommand of another package."""
    return CommandEntry("dance", "dances", EntryPoint("dance", value, "earvoice.commands"))


@pytest.mark.parametrize("name", ["up", "serve", "translate", "models", "demo"])
def test_our_commands_load(name):
    """Each declares its arguments."""
    command = find_commands()[name].load()
    assert isinstance(command, Command)
    command.add_arguments(argparse.ArgumentParser())


def test_a_missing_extra_is_named():
    """The message is the command that helps."""
    with pytest.raises(
        CommandError, match=r"dance needs no_such_module.*pip install 'earvoice\[lab\]'"
    ):
        entry("no_such_module:COMMAND [lab]").load()


def test_a_stranger_is_refused():
    """An entry point that names something else is told, not called."""
    with pytest.raises(CommandError, match="is no command, but a function"):
        entry("json:dumps").load()


def test_an_extra_is_checked_without_importing_it():
    """Looking for torch must not cost its import."""
    require_extra("policy")
    if "torch" not in sys.modules:
        try:
            require_extra("encoder")
        except CommandError as error:
            assert "earvoice[encoder]" in str(error)  # noqa: PT017 - torch may or may not be there
        assert "torch" not in sys.modules
