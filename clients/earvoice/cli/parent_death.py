"""Run as a script beside `earvoice up`: cleans up when that is killed and cannot do so itself.

* ``parent_death.py exec PARENT_PID PROGRAM ARGUMENT…`` asks Linux for SIGTERM at the parent's death
  and becomes the program; without it, killing ``earvoice up`` with SIGKILL would leave services
  that hold the ports. On other systems it only becomes the program.
* ``parent_death.py sweep`` reads paths from standard input, each ended by a NUL, and when the input
  ends it removes those that still exist: the parent's end closes the pipe, however it died.

Imports nothing of ours, so that it costs a few milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def become(parent_pid: int, program: list[str]) -> None:
    if sys.platform == "linux":
        library = ctypes.CDLL(None, use_errno=True)
        if library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        sys.exit("the parent died before the start")
    os.execv(program[0], program)  # noqa: S606 - no shell is the point


def sweep() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    paths = sys.stdin.buffer.read().split(b"\0")
    for path in map(Path, map(os.fsdecode, filter(None, paths))):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["exec", parent, *program]:
            become(int(parent), program)
        case ["sweep"]:
            sweep()
