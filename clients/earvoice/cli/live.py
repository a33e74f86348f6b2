"""``earvoice live``: the page, and what it needs, on this machine."""

from __future__ import annotations

import argparse
import webbrowser
from urllib.parse import urlencode

from earvoice.cli.command import Command, ExitCode, Interruption, run_until_signalled
from earvoice.cli.local_services import GATEWAY, ServiceChoices, run_services
from earvoice.cli.log_relay import ServiceLogs


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", action="append", metavar="TAG[,TAG...]", help="languages chosen on the page"
    )
    parser.add_argument("--port", type=int, default=8080, help="of the page (%(default)s; 0: any)")
    parser.add_argument("--no-browser", action="store_true", help="only print the page's address")


def _run(options: argparse.Namespace) -> int:
    async def serve(_: Interruption) -> int:
        choices = ServiceChoices(ports={GATEWAY: options.port}, gateway=True)
        async with run_services(choices, ServiceLogs(shown=False)) as services:
            address = page_address(services.addresses[GATEWAY], options.to or [])
            print(f"{address}  (Ctrl-C ends it)", flush=True)
            if not options.no_browser:
                webbrowser.open(address)
            await services.watch()
        return ExitCode.DONE

    return run_until_signalled(serve)


def page_address(gateway: str, languages: list[str]) -> str:
    """Return where a browser finds the page: by a name that it trusts with a microphone."""
    port = gateway.rpartition(":")[2]
    query = f"?{urlencode({'to': ','.join(languages)}, safe=',')}" if languages else ""
    return f"http://localhost:{port}/{query}"


COMMAND = Command(_add_arguments, _run, "open a page that captions what a microphone hears")
