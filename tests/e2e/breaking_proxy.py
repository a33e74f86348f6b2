"""A network that breaks: a TCP proxy whose connections can be reset or go dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class BreakingProxy:
    """Passes bytes on until it is told otherwise.

    Args:
        target: ``host:port``; may be changed for the connections to come.

    Attributes:
        connection_count: connections so far.
        broken: set once it has broken connections.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.connection_count = 0
        self.broken = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._ways: set[asyncio.Task[None]] = set()

    def reset(self) -> None:
        """Reset every connection."""
        self.broken.set()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def go_dead(self) -> None:
        """Pass nothing on any more over the connections that there are; they stay open."""
        self.broken.set()
        for way in self._ways:
            way.cancel()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection."""
        self.connection_count += 1
        host, port = self.target.rsplit(":", 1)
        try:
            there, back = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        ways = [_pass_on(reader, back), _pass_on(there, writer)]
        self._ways.update(asyncio.create_task(way) for way in ways)

    async def close(self) -> None:
        """End everything."""
        self.go_dead()
        self.reset()
        await asyncio.gather(*self._ways, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # to lose connections is what it is for
    writer.close()


@asynccontextmanager
async def breaking_proxy(target: str) -> AsyncIterator[tuple[BreakingProxy, str]]:
    """Give a proxy and its address."""
    proxy = BreakingProxy(target)
    server = await asyncio.start_server(proxy.connect, "127.0.0.1", 0)
    try:
        yield proxy, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await proxy.close()
