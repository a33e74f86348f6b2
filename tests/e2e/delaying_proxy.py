"""A network that takes its time: a TCP proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float
) -> None:
    """Each piece leaves so long after it came; pieces do not wait for one another."""
    loop = asyncio.get_running_loop()
    while data := await reader.read(65_536):
        loop.call_later(delay_s, writer.write, data)
    await asyncio.sleep(delay_s)
    writer.close()


@asynccontextmanager
async def delaying_proxy(target: str, delay_s: float) -> AsyncIterator[str]:
    """Give the address of a proxy that takes so long for each way."""
    host, port = target.rsplit(":", 1)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        ways = [_pass_on(reader, back, delay_s), _pass_on(there, writer, delay_s)]
        running.update(asyncio.create_task(way) for way in ways)

    running: set[asyncio.Task[None]] = set()
    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for way in running:
            way.cancel()
        await asyncio.gather(*running, return_exceptions=True)
