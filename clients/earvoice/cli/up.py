"""``earvoice up``: all services on this machine until Ctrl-C or SIGTERM.

``live`` does the same and opens the page in a browser; ``serve`` runs a single service.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

from earvoice.cli.command import (
    Command,
    CommandError,
    ExitCode,
    read_port,
    require_extra,
    run_until_signalled,
)
from earvoice.cli.local_services import (
    GATEWAY,
    SERVICES,
    ServiceChoices,
    add_start_argument,
    module_of,
    run_services,
    variable_prefix_of,
)
from earvoice.cli.log_relay import ServiceLogs
from earvoice.runtime.files import atomic_write


def _add_up_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address of the public service (policy's own setting)")
    parser.add_argument(
        "--port",
        type=read_port,
        help="port of the public service; 0 takes a free one (its own setting)",
    )
    for backend in ("encoder", "decoder"):
        parser.add_argument(
            f"--{backend}-port",
            type=read_port,
            default=0,
            help=f"port of the {backend}; 0: a free one",
        )
    parser.add_argument(
        "--gateway", action="store_true", help="also start the gateway: WebSocket, readers, page"
    )
    parser.add_argument(
        "--gateway-port",
        type=read_port,
        help="port of the gateway; 0 takes a free one (its own setting)",
    )
    parser.add_argument(
        "--ready-file",
        type=Path,
        help="JSON file for the addresses, written once the public service is ready",
    )
    parser.add_argument("--log-dir", type=Path, help="log to files here, not to standard error")
    add_start_argument(parser)


def _run_up(options: argparse.Namespace) -> int:
    if options.gateway_port is not None and not options.gateway:
        raise CommandError("--gateway-port needs --gateway")
    return run_until_signalled(lambda _: _serve(options))


async def _serve(options: argparse.Namespace) -> int:
    if options.ready_file:
        clear_ready_file(options.ready_file)
    choices = ServiceChoices(
        ports={
            "policy": options.port,
            "encoder": options.encoder_port,
            "decoder": options.decoder_port,
            GATEWAY: options.gateway_port,
        },
        gateway=options.gateway,
        policy_settings={"HOST": options.host} if options.host else {},
        measures_capacity=True,
        start_timeout_s=options.start_timeout_s,
        published=(options.ready_file,) if options.ready_file else (),
    )
    async with run_services(choices, ServiceLogs(shown=True, folder=options.log_dir)) as services:
        with ExitStack() as published:
            if options.ready_file:
                published.enter_context(publish_addresses(options.ready_file, services.addresses))
            for service, address in services.addresses.items():
                print(f"{service:8}{address}", flush=True)
            await services.watch()
    return ExitCode.DONE


def clear_ready_file(path: Path) -> None:
    """Remove the file of an earlier run, so that nobody takes its addresses for ours."""
    if not path.parent.is_dir():
        raise CommandError(f"--ready-file {path}: there is no folder {path.parent}")
    path.unlink(missing_ok=True)


@contextmanager
def publish_addresses(path: Path, addresses: Mapping[str, str]) -> Iterator[None]:
    """Keep a JSON object of ``service: "host:port"`` at ``path``; ``address`` is the public one.

    It appears whole or not at all, and is removed when the services stop.
    """
    content = {"address": addresses["policy"], **addresses}
    with atomic_write(path) as partial:
        partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf8")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _add_live_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", action="append", metavar="TAG[,TAG...]", help="languages chosen on the page"
    )
    parser.add_argument(
        "--port", type=read_port, default=8080, help="port of the page (%(default)s; 0: any)"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the page's address")


def _run_live(options: argparse.Namespace) -> int:
    return run_until_signalled(lambda _: _show_page(options))


async def _show_page(options: argparse.Namespace) -> int:
    choices = ServiceChoices(ports={GATEWAY: options.port}, gateway=True)
    async with run_services(choices, ServiceLogs(shown=False)) as services:
        # Browsers allow this host name to use the microphone.
        address = f"http://localhost:{services.addresses[GATEWAY].rpartition(':')[2]}/"
        if options.to:
            address += f"?{urlencode({'to': ','.join(options.to)}, safe=',')}"
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        if not options.no_browser:
            webbrowser.open(address)
        await services.watch()
    return ExitCode.DONE


def _add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("service", choices=SERVICES)
    add_listening_arguments(parser)


def add_listening_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (the service's own setting)")
    parser.add_argument("--port", type=read_port, help="port to listen on; 0 takes a free one")
    parser.add_argument(
        "--address-file", type=Path, help="file that gets host:port once the service is ready"
    )


def _run_serve(options: argparse.Namespace) -> int:
    return run_service(options.service, options)


def run_service(service: str, options: argparse.Namespace) -> int:
    """Become a service's process."""
    require_extra(service)
    program = [sys.executable, "-P", "-m", module_of(service)]
    environment = build_environment(service, options)
    os.execve(program[0], program, environment)  # noqa: S606 - no shell is the point


def build_environment(service: str, options: argparse.Namespace) -> dict[str, str]:
    given = {
        "HOST": options.host,
        "PORT": options.port,
        "ADDRESS_FILE": options.address_file,
    }
    prefix = variable_prefix_of(service)
    settings = {f"{prefix}{name}": str(value) for name, value in given.items() if value is not None}
    return {**os.environ, **settings}


LIVE = Command(_add_live_arguments, _run_live, "open a page that captions what a microphone hears")
UP = Command(_add_up_arguments, _run_up, "run all services on this machine")
SERVE = Command(_add_serve_arguments, _run_serve, "run one service in this process")
