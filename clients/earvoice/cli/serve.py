"""``earvoice serve SERVICE``: become one service."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from earvoice.cli.command import Command
from earvoice.cli.registry import require_extra
from earvoice.cli.service_plan import SERVICES, module_of, variable_prefix_of

if TYPE_CHECKING:
    import argparse


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("service", choices=SERVICES)
    parser.add_argument("--host", help="address to listen on (the service's own setting)")
    parser.add_argument("--port", type=int, help="port to listen on; 0 takes a free one")
    parser.add_argument(
        "--address-file", type=Path, help="gets host:port once the service is ready"
    )


def _run(options: argparse.Namespace) -> int:
    require_extra(options.service)
    program = [sys.executable, "-P", "-m", module_of(options.service)]
    os.execve(program[0], program, build_environment(options))  # noqa: S606 - no shell is the point


def build_environment(options: argparse.Namespace) -> dict[str, str]:
    """Return the service's environment: ours, and the options as its settings."""
    given = {
        "HOST": options.host,
        "PORT": options.port,
        "ADDRESS_FILE": options.address_file,
    }
    prefix = variable_prefix_of(options.service)
    settings = {f"{prefix}{name}": str(value) for name, value in given.items() if value is not None}
    return {**os.environ, **settings}


COMMAND = Command(_add_arguments, _run)
