"""``earvoice up``: all services on this machine until Ctrl-C or SIGTERM."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from earvoice.cli.command import Command
from earvoice.cli.event_loop import SignalledError, run_async
from earvoice.cli.exit_code import ExitCode
from earvoice.cli.local_services import START_TIMEOUT_S, ServiceChoices, run_services
from earvoice.cli.log_relay import LogFolder
from earvoice.cli.ready_file import clear, publish
from earvoice.cli.service_plan import SERVICES

if TYPE_CHECKING:
    import argparse

    from earvoice.cli.event_loop import Interruption


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address of the public service (policy's own setting)")
    parser.add_argument(
        "--port", type=int, help="port of the public service; 0 takes a free one (its own setting)"
    )
    for backend in ("encoder", "decoder"):
        parser.add_argument(
            f"--{backend}-port", type=int, default=0, help=f"port of the {backend}; 0: a free one"
        )
    parser.add_argument(
        "--ready-file",
        type=Path,
        help="JSON with the addresses, written when the public service serves",
    )
    parser.add_argument("--log-dir", type=Path, help="a log file each, instead of standard error")
    parser.add_argument(
        "--start-timeout-s",
        type=float,
        default=START_TIMEOUT_S,
        help="for each service (%(default)g)",
    )


def _run(options: argparse.Namespace) -> int:
    async def serve(_: Interruption) -> int:
        return await _serve(options)

    try:
        return run_async(serve)
    except SignalledError:
        # A signal is how one ends it.
        return ExitCode.DONE


async def _serve(options: argparse.Namespace) -> int:
    if options.ready_file:
        clear(options.ready_file)
    choices = ServiceChoices(
        ports={
            "policy": options.port,
            "encoder": options.encoder_port,
            "decoder": options.decoder_port,
        },
        policy_settings={"HOST": options.host} if options.host else {},
        measures_capacity=True,
        start_timeout_s=options.start_timeout_s,
    )
    async with run_services(choices, LogFolder(sys.stderr, options.log_dir)) as services:
        with ExitStack() as published:
            if options.ready_file:
                published.enter_context(publish(options.ready_file, services.addresses))
            for service in SERVICES:
                print(f"{service:8}{services.addresses[service]}", flush=True)
            await services.watch()
    return ExitCode.DONE


COMMAND = Command(_add_arguments, _run)
