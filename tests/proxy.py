"""A network that can be hurt: a TCP proxy."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

BLOCK_BYTES = 65_536
# Zero seconds of lingering: closing sends RST instead of FIN.
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """Passes bytes on, until told otherwise.

    Attributes:
        address: where it listens.
        broken: set once it has reset connections or gone dead.
    """

    def __init__(self, target: str, delay_s: float = 0.0) -> None:
        self.target = target
        self.address = ""
        self.delay_s = delay_s
        self.connection_count = 0
        self.broken = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._ways: set[asyncio.Task[None]] = set()
        self._answering: list[asyncio.Transport] = []

    async def serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    def reset(self) -> None:
        """Break every connection with RST."""
        self.broken.set()
        for writer in tuple(self._writers):
            connection = writer.get_extra_info("socket")
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            writer.transport.abort()
        self._writers.clear()

    def go_dead(self) -> None:
        """Pass nothing on any more over the connections that there are; they stay open."""
        self.broken.set()
        for way in self._ways:
            way.cancel()

    def go_deaf(self) -> None:
        """Read no answers any more from the sockets that there are; requests still pass."""
        for transport in self._answering:
            transport.pause_reading()

    def swallow(self) -> None:
        """Let nothing through from now on; connections stay as they are."""
        self._open.clear()

    def release(self) -> None:
        """Pass on again, first what waited: a network that is back delivers what is sent again."""
        self._open.set()

    async def close(self) -> None:
        self.go_dead()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._ways, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        await self._open.wait()
        host, _, port = self.target.rpartition(":")
        try:
            there, back = await asyncio.open_connection(host, int(port))
        except OSError:
            # Nobody listens behind it: the caller sees what it would see without a proxy, an end.
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        self._answering.append(back.transport)
        for source, sink in ((reader, back), (there, writer)):
            way = asyncio.create_task(self._pass_on(source, sink))
            self._ways.add(way)
            way.add_done_callback(self._ways.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivery = asyncio.create_task(self._deliver(pieces, sink))
        try:
            with suppress(OSError):
                while data := await source.read(BLOCK_BYTES):
                    pieces.put_nowait((loop.time() + self.delay_s, data))
            pieces.put_nowait((loop.time() + self.delay_s, b""))
            await delivery
        finally:
            delivery.cancel()

    async def _deliver(
        self, pieces: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        data = b"-"
        with suppress(OSError):
            while data:
                due_s, data = await pieces.get()
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        sink.close()
        self._writers.discard(sink)


@asynccontextmanager
async def open_proxy(target: str, delay_s: float = 0.0) -> AsyncIterator[Proxy]:
    proxy = Proxy(target, delay_s)
    async with await proxy.serve() as server:
        try:
            yield proxy
        finally:
            server.close()
            await proxy.close()
