"""Which commands there are, and how one runs: its arguments, its errors, its exit status."""

from __future__ import annotations

import argparse
import ast
import errno
import importlib.util
import io
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import Never

from earvoice.cli.command import (
    EXIT_STATUS_HELP,
    Command,
    CommandError,
    ExitCode,
    SignalledError,
    exit_code_of,
    os_error_text,
)
from earvoice.client.errors import Advice, TranslationError

ENTRY_POINT_GROUP = "earvoice.commands"

_BUILT_IN = {
    "up": "up:UP",
    "live": "up:LIVE",
    "serve": "up:SERVE",
    "gateway": "gateway:COMMAND",
    "translate": "translate:COMMAND",
    "models": "listing:MODELS",
    "presets": "listing:PRESETS_COMMAND",
    "demo": "demo:COMMAND",
    "latency": "latency:COMMAND",
}
_WRITE_ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EBADF)
_ADVICE = {
    Advice.RETRY: "nothing was lost: try again",
    Advice.RESUME: "what was printed stays valid: translate the rest of the audio again",
    Advice.GIVE_UP: "the same command will fail again",
}


def summary_of(entry: EntryPoint) -> str:
    """Return a command's summary from its source: importing all commands takes seconds."""
    try:
        found = importlib.util.find_spec(entry.module)
        source = Path(found.origin or "").read_text(encoding="utf8") if found else ""
        for node in ast.parse(source).body:
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=entry.attr)],
                    value=ast.Call(args=[*_, ast.Constant(value=str(summary))]),
                ):
                    return summary
    except (ImportError, OSError, SyntaxError):
        pass  # Help must work all the same: `load_command` says what is wrong with the command.
    return f"added by {entry.module}"


def load_command(entry: EntryPoint) -> Command:
    try:
        command = entry.load()
    except ImportError as error:
        extra = ",".join(entry.extras) or "lab"
        raise CommandError(
            f"{entry.name} needs {error.name}, which is not installed: "
            f"pip install 'earvoice[{extra}]'"
        ) from error
    if not isinstance(command, Command):
        raise CommandError(f"{entry.value} is not a command but a {type(command).__name__}")
    return command


def find_commands() -> Mapping[str, EntryPoint]:
    """Return all commands by name; none is imported before it is asked for."""
    found = {
        name: EntryPoint(name, f"earvoice.cli.{origin} [cli]", ENTRY_POINT_GROUP)
        for name, origin in _BUILT_IN.items()
    }
    for point in entry_points(group=ENTRY_POINT_GROUP):
        found.setdefault(point.name, point)
    return found


def run(arguments: Sequence[str]) -> int:
    logging.basicConfig(format="earvoice: %(message)s", level=logging.WARNING)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal's encoding lacks is written as its escape.
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _run(arguments)
    except CommandError as error:
        message, status = str(error), error.exit_code
    except TranslationError as error:
        message, status = _explain(error), exit_code_of(error)
    except SignalledError as error:
        message, status = str(error), ExitCode.SIGNAL + error.signal_number
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nobody is left to be told.
        _drop_output()
        return ExitCode.DONE
    except OSError as error:
        message, status = os_error_text(error), ExitCode.USAGE
        if error.filename is None and error.errno in _WRITE_ERRORS:
            _drop_output()
            message, status = f"output cannot be written: {error.strerror}", ExitCode.OUTPUT
    else:
        return status
    return _fail(message, status)


def _run(arguments: Sequence[str]) -> int:
    entries = find_commands()
    chosen = next((argument for argument in arguments if not argument.startswith("-")), "")
    command = load_command(entries[chosen]) if chosen in entries else None
    options = _parser(entries, chosen, command).parse_args(arguments)
    if command is None:
        raise CommandError("no command was given")
    if sys.stdout is None:
        raise CommandError(
            "standard output is closed: there is nowhere to write to", ExitCode.OUTPUT
        )
    try:
        status = command.run(options)
    except UnicodeEncodeError as error:
        # An argument's other bytes become letters that only a file's name may have.
        raise CommandError(f"{error.object[:99]!r} is not UTF-8") from error
    sys.stdout.flush()
    return status


def _drop_output() -> None:
    """Discard what is left in the buffer, so that the interpreter can exit without an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _ArgumentParser(argparse.ArgumentParser):
    """Reports an error in one line, and where to read more."""

    def error(self, message: str) -> Never:
        self.exit(ExitCode.USAGE, f"earvoice: {message} (see {self.prog} --help)\n")


def _parser(
    entries: Mapping[str, EntryPoint], chosen: str, command: Command | None
) -> argparse.ArgumentParser:
    parser = _ArgumentParser(
        prog="earvoice",
        description="Live speech translation: speech in, words out.",
        epilog=EXIT_STATUS_HELP,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=16
        ),
    )
    parser.add_argument("--version", action="version", version=f"earvoice {version('earvoice')}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, entry in entries.items():
        if command is None:
            subparsers.add_parser(name, help=summary_of(entry))
        elif name == chosen:
            command.add_arguments(subparsers.add_parser(name, description=command.summary))
    return parser


def _explain(error: TranslationError) -> str:
    status = " ".join(part for part in (error.code, error.reason) if part)
    wait = f" in {error.retry_after_s:g} s" if error.retry_after_s is not None else ""
    if not status:
        return error.message
    return f"{error.message} ({status})\nearvoice: {_ADVICE[error.advice]}{wait}"


def _fail(message: str, status: int) -> int:
    print(f"earvoice: {message}", file=sys.stderr, flush=True)
    return int(status)
