"""All addresses behind a name."""

from __future__ import annotations

import asyncio
import socket

from earvoice.policy.backend_target import NamedPort


async def look_up(named: NamedPort) -> list[str]:
    """Return ``host:port`` of every A and AAAA record, each once.

    Raises:
        OSError: the name cannot be resolved now.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(named.name, named.port, type=socket.SOCK_STREAM)
    addresses = [
        f"[{place[0]}]:{named.port}" if family == socket.AF_INET6 else f"{place[0]}:{named.port}"
        for family, _, _, _, place in found
    ]
    return list(dict.fromkeys(addresses))
