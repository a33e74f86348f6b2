"""Commands of the lab, in this process."""

from __future__ import annotations

import argparse
from importlib.metadata import EntryPoint

from earvoice.cli.command import CommandError

COMMANDS = {
    "replay": "earvoice.evaluation.commands:REPLAY",
    "calibrate": "earvoice.evaluation.commands:CALIBRATE",
    "precision": "earvoice.evaluation.commands:PRECISION",
}


def run_command(name: str, *arguments: object) -> int:
    """Run a command; what it refuses ends it as at the command line."""
    command = EntryPoint(name, COMMANDS[name], "earvoice.commands").load()
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    try:
        return int(command.run(parser.parse_args([str(argument) for argument in arguments])))
    except CommandError as error:
        raise SystemExit(str(error)) from error
