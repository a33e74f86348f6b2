"""How a command shows who it is to a server, and knows whom it talks to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from earvoice.cli.command import CommandError
from earvoice.client.translation_client import TranslationClient, connect
from earvoice.runtime.tls import ChannelTls

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

TOKEN_VARIABLE = "EARVOICE_TOKEN"  # noqa: S105 - the variable's name


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare TLS and the token."""
    group = parser.add_argument_group("connection to --server")
    group.add_argument("--tls", action="store_true", help="encrypt; the system's authorities count")
    group.add_argument(
        "--ca-file", type=Path, help="encrypt; authorities (PEM) that the server comes from"
    )
    group.add_argument("--certificate", type=Path, help="ours (PEM), where the server asks for one")
    group.add_argument("--key", type=Path, help="its private key (PEM)")
    group.add_argument(
        "--token-file",
        type=Path,
        help=f"bearer token to show, read for each call (or {TOKEN_VARIABLE})",
    )


def open_client(address: str, options: argparse.Namespace) -> TranslationClient:
    """Return a client as the arguments want it.

    Args:
        address: of the server.
        options: of the command; without ``server`` they concern services on this machine, which
            ask for nothing.

    Raises:
        CommandError: TLS without a server to speak it with, or a token in the clear.
        TlsFileError: a certificate, key or authority cannot be used.
    """
    tls = _read_tls(options)
    if tls is not None and not options.server:
        raise CommandError("TLS needs a --server: services started for the run are on loopback")
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
        return lambda: path.read_text(encoding="utf8").strip()
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    return (lambda: token) if token else None
