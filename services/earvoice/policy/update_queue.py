"""Changes in mid-stream, on their way to the first segment that ends behind them."""

from __future__ import annotations

import asyncio
from collections import deque

from earvoice.policy.stream_options import StreamOptions

MAX_WAITING_UPDATES = 64


class UpdateQueue:
    """Keeps changes of a session's options in their place in the audio."""

    def __init__(self) -> None:
        self._updates: deque[tuple[int, StreamOptions]] = deque()
        self._taken = asyncio.Event()

    async def add(self, position_sample: int, options: StreamOptions) -> None:
        """Add a change; waits while too many are on their way.

        Of several at one place the last counts, because options are whole. So those that fill the
        queue lie before audio which has come: the session works them off, and the wait ends.

        Args:
            position_sample: audio of the session received before it.
            options: the session's options from then on.
        """
        if self._updates and self._updates[-1][0] == position_sample:
            self._updates[-1] = (position_sample, options)
            return
        while len(self._updates) >= MAX_WAITING_UPDATES:
            self._taken.clear()
            await self._taken.wait()
        self._updates.append((position_sample, options))

    def take_before(self, end_sample: int) -> tuple[int, StreamOptions] | None:
        """Return and forget the oldest change if it lies before the end of a segment."""
        if self._updates and self._updates[0][0] < end_sample:
            self._taken.set()
            return self._updates.popleft()
        return None
