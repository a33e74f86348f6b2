"""A network and mounts of our own, which go when we go: rules and disks cannot be left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

MARK = "EARVOICE_FAULTS_ISOLATED"
TOOLS = ("unshare", "ip", "iptables", "mount")


def isolate(module: str) -> bool:
    """Run the module again in namespaces of its own, or return whether we are in them.

    Returns:
        False where that cannot be had: not root, or a tool is missing.
    """
    if os.environ.get(MARK):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)  # noqa: S607 - the system's
        return True
    if os.geteuid() != 0 or not all(map(shutil.which, TOOLS)):
        return False
    _start_again(module)
    raise AssertionError  # It has taken our place, or raised.


def _start_again(module: str) -> None:
    command = ["unshare", "--net", "--mount", sys.executable, "-m", module, *sys.argv[1:]]
    os.execvpe(command[0], command, {**os.environ, MARK: "1"})  # noqa: S606 - no shell is wanted
