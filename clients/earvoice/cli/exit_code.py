"""What the command's exit status means.

0    done
1    give up: the server refused the request, or has a bug; the same command will fail again
2    usage: an argument is wrong, or an extra is not installed
3    input: a recording or standard input cannot be read
4    services: the services on this machine did not start
75   retry: the same command may succeed later (sysexits' EX_TEMPFAIL)
76   resume: the stream broke after it had begun; what was printed stays valid
128+ the signal that ended it: 130 for Ctrl-C, 143 for SIGTERM (``up`` answers both with 0)
"""

from __future__ import annotations

from enum import IntEnum

from earvoice.client.errors import Advice, AudioSourceError, TranslationError


class ExitCode(IntEnum):
    """The command's exit status."""

    DONE = 0
    GIVE_UP = 1
    USAGE = 2
    INPUT = 3
    SERVICES = 4
    RETRY = 75
    RESUME = 76
    SIGNAL = 128


_BY_ADVICE = {
    Advice.GIVE_UP: ExitCode.GIVE_UP,
    Advice.RETRY: ExitCode.RETRY,
    Advice.RESUME: ExitCode.RESUME,
}


def exit_code_of(error: TranslationError) -> ExitCode:
    """Return the exit status of a failed translation."""
    if isinstance(error, AudioSourceError):
        return ExitCode.INPUT
    return _BY_ADVICE[error.advice]
