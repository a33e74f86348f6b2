"""Attacks below gRPC: bytes that are no HTTP/2, frames that are no gRPC, silence, resets."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from contextlib import suppress

from tests.fuzz.attack import Attack
from tests.fuzz.exchange import Ending

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = bytes(3) + b"\x04" + bytes(5)
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
HELD_CONNECTIONS = 50


async def no_http(address: str, draw: random.Random) -> list[Ending]:
    """Anything but HTTP/2."""
    await _send(
        address, draw.choice((draw.randbytes(2000), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03"))
    )
    return []


async def odd_frames(address: str, draw: random.Random) -> list[Ending]:
    """HTTP/2 frames of any type, flags, stream and length."""
    frames = [PREFACE, EMPTY_SETTINGS]
    for _ in range(draw.randint(1, 30)):
        body = draw.randbytes(draw.randrange(200))
        claimed = draw.choice((len(body), len(body), draw.randrange(1 << 24)))
        head = claimed.to_bytes(3, "big") + bytes([draw.randrange(12), draw.randrange(256)])
        frames.append(head + struct.pack(">I", draw.choice((0, 1, 2, 3, 2**31 - 1))) + body)
    await _send(address, b"".join(frames))
    return []


async def silent_connections(address: str, draw: random.Random) -> list[Ending]:
    """Connections that say nothing, and are then reset."""
    host, _, port = address.rpartition(":")
    count = draw.randint(1, HELD_CONNECTIONS)
    opened = await asyncio.gather(*(asyncio.open_connection(host, int(port)) for _ in range(count)))
    for _, writer in opened:
        await _reset(writer)
    return []


async def _send(address: str, data: bytes) -> None:
    """Send bytes, read until the server ends it or has nothing more to say, and reset."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(0.5):
            while await reader.read(4096):
                pass
    await _reset(writer)


async def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


ATTACKS = tuple(
    Attack(strike.__name__, strike) for strike in (no_http, odd_frames, silent_connections)
)
