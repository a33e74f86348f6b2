"""What a subcommand is, how it runs, and what its exit status means.

Other packages add theirs by an entry point in the group ``earvoice.commands`` that names a
``Command``, followed by the extra it needs: ``train = "earvoice.training.command:COMMAND [lab]"``.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import signal
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from earvoice.client.errors import Advice, AudioSourceError, TranslationError

Result = TypeVar("Result")
Number = TypeVar("Number", int, float)

SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_STATUS_HELP = """\
exit status:
0    done
1    give up: the server refused the request, or has a bug; the same command will fail again
2    usage: an argument is wrong, or an extra is not installed
3    input: a recording or standard input cannot be read
4    services: the services on this machine did not start
74   output: what was said cannot be written, such as on a full disk (sysexits' EX_IOERR)
75   retry: the same command may succeed later (sysexits' EX_TEMPFAIL)
76   resume: the stream broke after it had begun; what was printed stays valid
128+ the signal that ended it: 130 for Ctrl-C, 143 for SIGTERM (up answers both with 0)"""
# The module that shows whether an extra is installed.
_EXTRA_PROBES = {
    "encoder": "torch",
    "decoder": "torch",
    "gateway": "starlette",
    "cli": "soundfile",
}


class ExitCode(IntEnum):
    DONE = 0
    GIVE_UP = 1
    USAGE = 2
    INPUT = 3
    SERVICES = 4
    OUTPUT = 74
    RETRY = 75
    RESUME = 76
    SIGNAL = 128


_BY_ADVICE = {
    Advice.GIVE_UP: ExitCode.GIVE_UP,
    Advice.RETRY: ExitCode.RETRY,
    Advice.RESUME: ExitCode.RESUME,
}


def exit_code_of(error: TranslationError) -> ExitCode:
    if isinstance(error, AudioSourceError):
        return ExitCode.INPUT
    return _BY_ADVICE[error.advice]


@dataclass(frozen=True)
class Command:
    """One subcommand; ``run`` returns its exit status.

    Attributes:
        summary: what it does, for ``--help``; a plain string literal, since it is read from the
            module's source without importing it.
    """

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    summary: str


class CommandError(Exception):
    """A command cannot go on; the message tells its user what is wrong and what to do."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def os_error_text(error: OSError) -> str:
    """Return what the system says of a file, as other programs do, or else all it says."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}"


class SignalledError(Exception):
    """A signal ended the command; everything it had started was stopped."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"ended by {signal.Signals(signal_number).name}")
        self.signal_number = signal_number


def number_from(least: float, most: float, kind: type[Number]) -> Callable[[str], Number]:
    """Return a `type` for `argparse` that reads a number between ``least`` and ``most``."""

    def read(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not allowed; allowed: {least:g} to {most:g}"
            )
        return value

    return read


read_port = number_from(0, 65_535, int)


def require_extra(extra: str) -> None:
    module = _EXTRA_PROBES.get(extra)
    if module is not None and importlib.util.find_spec(module) is None:
        raise CommandError(f"{module} is not installed: pip install 'earvoice[{extra}]'")


class Interruption:
    """What a signal does to the running command: cancel its task, so that it can clean up."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._instead: Callable[[], None] | None = None
        self.signal_number: int | None = None

    def call_instead(self, callback: Callable[[], None] | None) -> None:
        """Let the next Ctrl-C call this instead of ending the command; the one after ends it.

        None lets it end the command again.
        """
        self._instead = callback

    def receive(self, signal_number: int) -> None:
        if signal_number == signal.SIGINT and self._instead is not None:
            callback, self._instead = self._instead, None
            callback()
            return
        self.signal_number = signal_number
        if self._task is not None:
            self._task.cancel()


def run_async(command: Callable[[Interruption], Coroutine[Any, Any, Result]]) -> Result:
    """Run a command to its result; SIGINT and SIGTERM raise SignalledError."""

    async def run() -> Result:
        interruption = Interruption()
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, interruption.receive, number)
        try:
            return await command(interruption)
        except asyncio.CancelledError:
            if interruption.signal_number is None:
                raise
            raise SignalledError(interruption.signal_number) from None

    return asyncio.run(run())


def run_until_signalled(command: Callable[[Interruption], Coroutine[Any, Any, int]]) -> int:
    """Run a command whose normal end is a signal."""
    try:
        return run_async(command)
    except SignalledError:
        return ExitCode.DONE


async def gather(works: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Run all at once and return their results; the first failure ends the others and is raised.

    A ``TaskGroup`` alone would raise an exception group, even for one failure.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
