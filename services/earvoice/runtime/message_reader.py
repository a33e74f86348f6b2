"""Reads a call's messages so that a read may be given up without being lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator


class MessageReader:
    """The incoming side of one call.

    gRPC allows one read at a time and a cancelled one spoils the call, so a read that its caller
    gives up goes on, and serves the next caller.

    Args:
        raw: the call's messages.
    """

    def __init__(self, raw: AsyncIterator[bytes]) -> None:
        self._raw = raw
        self._reading: asyncio.Future[bytes | None] | None = None

    async def next(self) -> bytes | None:
        """Return the next message, or None when the caller has half-closed."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(anext(self._raw, None))
        message = await asyncio.shield(self._reading)
        self._reading = None
        return message

    async def discard(self, timeout_s: float) -> None:
        """Read and forget messages until the half-close, but no longer than this."""
        try:
            async with asyncio.timeout(timeout_s):
                while await self.next() is not None:
                    pass
        except TimeoutError:
            return

    async def close(self) -> None:
        """End a read that still runs. The call is over."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
