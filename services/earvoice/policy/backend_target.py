"""Where the replicas of a service are: addresses, or names that are looked up."""

from __future__ import annotations

LOOKED_UP = "dns:///"
MAX_PORT = 65_535
ALLOWED = "host:port or dns:///name:port, several separated by commas"


NamedPort = tuple[str, int]
"""A name behind which there may be several addresses, with the same port on each."""


def parse_target(text: str) -> tuple[tuple[str, ...], tuple[NamedPort, ...]]:
    """Read a setting's value, as `ALLOWED` has it.

    Returns:
        Addresses, ``host:port`` each, as given: a name here is one replica to us, and what it
        leads to is the transport's affair, or a proxy's. And names, every address of which is a
        replica.
    """
    addresses: dict[str, None] = {}
    names: dict[NamedPort, None] = {}
    for part in (part.strip() for part in text.split(",")):
        host, port = _host_and_port(part.removeprefix(LOOKED_UP), text)
        if part.startswith(LOOKED_UP):
            names[host, port] = None
        else:
            addresses[part] = None
    return tuple(addresses), tuple(names)


def _host_and_port(part: str, text: str) -> tuple[str, int]:
    host, _, port = part.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_host = bool(bare) and "/" not in bare and (":" not in bare or bare != host)
    is_port = port.isascii() and port.isdigit() and 1 <= int(port) <= MAX_PORT
    if not (is_host and is_port):
        raise ValueError(f"{text!r} is not allowed; allowed: {ALLOWED}")
    return bare, int(port)
