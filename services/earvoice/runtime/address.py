"""Which addresses only this machine can reach."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host: a name, an IPv4 or an IPv6 address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def stays_here(target: str) -> bool:
    """Return whether a gRPC target leads to this machine only.

    Args:
        target: ``host:port``, ``dns:///host:port``, ``unix:path`` and so on.
    """
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    host = target.rpartition("/")[2].rpartition(":")[0]
    return is_loopback(host)
