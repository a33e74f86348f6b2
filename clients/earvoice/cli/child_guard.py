"""Run as a script before a child's own program: ends the child when its parent dies.

``python child_guard.py PARENT_PID PROGRAM ARGUMENT…`` asks Linux for SIGTERM at the parent's death
and becomes the program; without it, killing ``earvoice up`` with SIGKILL would leave services
behind that hold the ports. Elsewhere it only becomes the program. Imports nothing of ours, so that
it costs a few milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent_pid: int, program: list[str]) -> None:
    """Become the program.

    Raises:
        OSError: Linux refuses, or there is no such program.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None, use_errno=True)
        if library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        sys.exit("the parent died before the start")
    os.execv(program[0], program)  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
