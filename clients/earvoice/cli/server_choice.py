"""Which server a command talks to: a given one, or one started on this machine for the run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from earvoice.cli.command import CommandError
from earvoice.cli.local_services import ServiceChoices, add_start_argument, run_services
from earvoice.cli.log_relay import ServiceLogs
from earvoice.client.server_channels import split_address
from earvoice.client.translation_client import TranslationClient, connect
from earvoice.policies.registry import is_file_form, resolved_file
from earvoice.runtime.authentication import is_showable
from earvoice.runtime.tls import ChannelTls

TOKEN_VARIABLE = "EARVOICE_TOKEN"  # noqa: S105 - the variable's name


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument(
        "--server", metavar="HOST:PORT", help="without it, the services are started for the run"
    )
    group.add_argument(
        "--log-dir", type=Path, help="keep the logs of the services started for the run"
    )
    add_start_argument(group)
    group = parser.add_argument_group("connection to --server")
    group.add_argument("--tls", action="store_true", help="encrypt; trust the system's authorities")
    group.add_argument("--ca-file", type=Path, help="encrypt; trust only these authorities (PEM)")
    group.add_argument(
        "--certificate", type=Path, help="client certificate (PEM), if it is asked for"
    )
    group.add_argument("--key", type=Path, help="its private key (PEM)")
    group.add_argument(
        "--token-file",
        type=Path,
        help=f"file of the bearer token to send, read for each call (or {TOKEN_VARIABLE})",
    )


@asynccontextmanager
async def choose_server(
    options: argparse.Namespace, trace_folder: Path | None = None
) -> AsyncIterator[str]:
    """Yield the address of the server to use; services started for the run are stopped at the end.

    With a trace folder, services started for the run write their spans there.
    """
    if options.server:
        yield options.server
        return
    if _read_tls(options) is not None:
        raise CommandError("TLS needs a --server: services started for the run are on loopback")
    if options.token_file is not None:
        raise CommandError("--token-file needs a --server: services started for the run ask none")
    if sys.stderr.isatty():
        print("starting encoder, decoder and policy ...", file=sys.stderr, flush=True)
    choices = ServiceChoices(
        policy_settings=_policy_settings(options),
        start_timeout_s=options.start_timeout_s,
        trace_folder=trace_folder,
    )
    logs = ServiceLogs(folder=options.log_dir)
    try:
        async with run_services(choices, logs) as services:
            yield services.addresses["policy"]
    finally:
        # Such as what a policy from a file has raised: its caller is told no more than a number.
        if logs.has_lost_errors:
            message = "earvoice: the services logged errors: --log-dir FOLDER keeps their logs"
            print(message, file=sys.stderr, flush=True)


def _policy_settings(options: argparse.Namespace) -> dict[str, str]:
    asked = [getattr(options, "policy", None), *(getattr(options, "sweep", None) or ())]
    files = dict.fromkeys(resolved_file(text) for text in asked if text and is_file_form(text))
    return {"EXTRA_POLICIES": ",".join(files)} if files else {}


def open_client(address: str, options: argparse.Namespace) -> TranslationClient:
    tls = _read_tls(options)
    try:
        parts = split_address(address)
    except ValueError as error:
        raise CommandError(str(error)) from error
    for part in parts:
        if tls is None and ":" not in part:
            raise CommandError(f"--server {part} has no port; allowed: HOST:PORT")
    try:
        return connect(address, tls=tls, token=_token_reader(options) or "")
    except ValueError as error:
        raise CommandError(f"{error}: give --tls or --ca-file") from error


def _read_tls(options: argparse.Namespace) -> ChannelTls | None:
    if not (options.tls or options.ca_file or options.certificate or options.key):
        return None
    return ChannelTls(options.ca_file, options.certificate, options.key)


def _token_reader(options: argparse.Namespace) -> Callable[[], str] | None:
    if options.token_file is not None:
        path: Path = options.token_file
        if not path.is_file():
            raise CommandError(f"--token-file {path}: no such file")
        return lambda: _checked_token(path.read_bytes().decode(errors="replace"), f"{path}")
    token = _checked_token(os.environ.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE)
    return (lambda: token) if token else None


def _checked_token(text: str, place: str) -> str:
    token = text.strip()
    if not is_showable(token):
        raise CommandError(f"{place} has characters other than printable ASCII: it is not a token")
    return token
