"""``earvoice COMMAND``."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import TYPE_CHECKING

from earvoice.cli import exit_code
from earvoice.cli.command import Command, CommandError
from earvoice.cli.event_loop import SignalledError
from earvoice.cli.exit_code import ExitCode, exit_code_of
from earvoice.cli.registry import CommandEntry, find_commands
from earvoice.client.errors import Advice, TranslationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ADVICE = {
    Advice.RETRY: "nothing was lost: try again",
    Advice.RESUME: "what was printed stays valid: translate the rest of the audio again",
    Advice.GIVE_UP: "the same command will fail again",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status (see ``exit_code``)."""
    logging.basicConfig(format="earvoice: %(message)s", level=logging.WARNING)
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(arguments)
    except CommandError as error:
        return _fail(str(error), error.exit_code)
    except TranslationError as error:
        return _fail(_explain(error), exit_code_of(error))
    except SignalledError as error:
        return _fail(str(error), ExitCode.SIGNAL + error.signal_number)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nobody is left to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except OSError as error:
        return _fail(str(error), ExitCode.USAGE)


def _run(arguments: Sequence[str]) -> int:
    entries = find_commands()
    chosen = next((argument for argument in arguments if not argument.startswith("-")), "")
    command = entries[chosen].load() if chosen in entries else None
    options = _parser(entries, chosen, command).parse_args(arguments)
    if command is None:
        raise CommandError("no command was given")
    return command.run(options)


def _parser(
    entries: Mapping[str, CommandEntry], chosen: str, command: Command | None
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="earvoice",
        description="Live speech translation: speech in, words out.",
        epilog=f"exit status:\n{(exit_code.__doc__ or '').split('.', 1)[1].strip()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, entry in entries.items():
        subparser = subparsers.add_parser(name, help=entry.summary, description=entry.summary)
        if name == chosen and command is not None:
            command.add_arguments(subparser)
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


if __name__ == "__main__":
    sys.exit(main())
