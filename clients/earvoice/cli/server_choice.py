"""Which server a command talks to: a given one, or one started on this machine for the run."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from earvoice.cli.connection import add_connection_arguments
from earvoice.cli.local_services import START_TIMEOUT_S, ServiceChoices, run_services
from earvoice.cli.log_relay import LogFolder

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--server`` and what concerns services started for the run."""
    group = parser.add_argument_group("server")
    group.add_argument(
        "--server", metavar="HOST:PORT", help="without it, the services are started for the run"
    )
    group.add_argument(
        "--log-dir", type=Path, help="keep the logs of the services started for the run"
    )
    group.add_argument(
        "--start-timeout-s",
        type=float,
        default=START_TIMEOUT_S,
        help="for each service (%(default)g)",
    )
    add_connection_arguments(parser)


@asynccontextmanager
async def choose_server(
    options: argparse.Namespace, trace_folder: Path | None = None
) -> AsyncIterator[str]:
    """Give the address of the server to use; what was started for it is stopped at the end.

    Args:
        options: of the command.
        trace_folder: where services started for the run write their spans.

    Raises:
        CommandError: what a service needs is not installed, or it did not come to serve.
    """
    if options.server:
        yield options.server
        return
    if sys.stderr.isatty():
        print("starting encoder, decoder and policy ...", file=sys.stderr, flush=True)
    choices = ServiceChoices(start_timeout_s=options.start_timeout_s, trace_folder=trace_folder)
    async with run_services(choices, LogFolder(folder=options.log_dir)) as services:
        yield services.addresses["policy"]
