"""The programs that some checks need, and the tests that are skipped without them."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OBSERVABILITY = ROOT / "deploy" / "observability"
NODE_MODULES = ROOT / ".work" / "node" / "node_modules"

RECIPE = "make test-tools installs it"
_PORTS = range(20_000, 30_000)


def program(name: str) -> str:
    """Where a program is; skips the test if it is not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: {RECIPE}")
    return path


def rotel_agent() -> Path:
    """Where rotel's program is; skips the test if it is not installed."""
    found = importlib.util.find_spec("rotel")
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"rotel is not installed: {RECIPE}")
    return Path(found.submodule_search_locations[0]) / "rotel-agent"


def node_package(name: str) -> Path:
    """Where a package of npm's is; skips the test if it is not installed."""
    program("node")
    folder = Path(os.environ.get("EARVOICE_NODE_MODULES", NODE_MODULES)) / name
    if not folder.is_dir():
        pytest.skip(f"npm's {name} is not in {folder.parent}: {RECIPE}")
    return folder


def output_of(*command: str | Path, folder: Path | None = None) -> str:
    result = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ports of this machine that nobody listens at.

    They are below those that Linux gives to connections, lest one takes a port before its user.
    """
    ports: list[int] = []
    # The common generator begins anew with each test, and would give the last one's ports.
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as trial, suppress(OSError):
            trial.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError(f"of the ports {_PORTS} only {len(ports)} are free, {count} are needed")
