"""TLS: its files, all PEM, and which addresses need none because only this machine reaches them.

Imports no grpc.
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path


class TlsFileError(OSError):
    """A certificate, key or authority cannot be used; the message names the file."""


@dataclass(frozen=True)
class ChannelTls:
    """What a client uses to verify its server, and to identify itself to it.

    Attributes:
        ca_file: authorities that a server's certificate must come from; None for the system's.
        server_name: name that the server's certificate must bear; empty for the target's host.
    """

    ca_file: Path | str | None = None
    certificate_file: Path | str | None = None
    key_file: Path | str | None = None
    server_name: str = ""

    def check(self) -> None:
        _check_pair(self.certificate_file, self.key_file)
        _check_authorities(self.ca_file)


@dataclass(frozen=True)
class ServerTls:
    """A server's own certificate; without ``client_ca_file`` clients need none."""

    certificate_file: Path
    key_file: Path
    client_ca_file: Path | None = None

    def check(self) -> None:
        _check_pair(self.certificate_file, self.key_file)
        _check_authorities(self.client_ca_file)


def _check_pair(certificate_file: Path | str | None, key_file: Path | str | None) -> None:
    if certificate_file is None and key_file is None:
        return
    if certificate_file is None or key_file is None:
        raise TlsFileError(
            f"{certificate_file or key_file}: a certificate and its key are given together"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without this, an encrypted key would prompt for its password on the terminal.
        context.load_cert_chain(certificate_file, key_file, password="")
    except (OSError, ValueError) as error:
        raise TlsFileError(
            f"certificate {certificate_file} with key {key_file} cannot be used: {error}"
        ) from error


def _check_authorities(ca_file: Path | str | None) -> None:
    if ca_file is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca_file)
    except OSError as error:
        raise TlsFileError(f"authorities {ca_file} cannot be used: {error}") from error


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def reachable_host(host: str) -> str:
    """Return the host at which this machine's programs reach a listener, perhaps on all hosts."""
    return {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "::": "::1"}.get(host, host)  # noqa: S104 - compared


def is_local_target(target: str) -> bool:
    """Return whether a gRPC target, such as ``dns:///host:port``, leads to this machine only."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    host = target.rpartition("/")[2].rpartition(":")[0]
    return is_loopback(host)
