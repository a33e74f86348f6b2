"""Where a server is: one address, several, or a name that stands for several."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass

_DNS = "dns:///"


@dataclass(frozen=True)
class ServerTarget:
    """An address of the server.

    Attributes:
        address: ``host:port``, or any gRPC target.
        host: name that its certificate bears, where the address does not say it; else empty.
    """

    address: str
    host: str = ""


def split_address(address: str) -> tuple[str, ...]:
    """Return the parts of a list of addresses.

    Raises:
        ValueError: one of them is empty.
    """
    parts = tuple(part.strip() for part in address.split(","))
    if not all(parts):
        raise ValueError(
            f"server = {address!r} is not allowed; allowed: host:port, several separated by "
            "commas, or dns:///name:port"
        )
    return parts


async def find_targets(parts: tuple[str, ...]) -> list[ServerTarget]:
    """Return all addresses now: a name given as ``dns:///name:port`` stands for all of its own.

    One that is not known now is left to gRPC, which says what is wrong with it.
    """
    targets: list[ServerTarget] = []
    for part in parts:
        targets += await _looked_up(part) if part.startswith(_DNS) else [ServerTarget(part)]
    return targets


async def _looked_up(part: str) -> list[ServerTarget]:
    name, _, port = part.removeprefix(_DNS).rpartition(":")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except OSError:
        return [ServerTarget(part)]
    addresses = dict.fromkeys((family, str(place[0])) for family, _, _, _, place in found)
    return [
        ServerTarget(f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}", name)
        for family, host in addresses
    ]
