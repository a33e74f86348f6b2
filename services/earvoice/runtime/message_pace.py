"""How fast one call's messages are read, so that no caller has the event loop for itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

MESSAGES_PER_SECOND = 1000
"""Ten times what a microphone sends in pieces of 10 ms; some 15 % of a core."""


class MessagePace:
    """Lets a second's messages through at once, and then no more than that a second.

    Messages that are not read wait in the network, as audio does that is not worked on.

    Args:
        rate_per_s: messages a second.
        clock_s: monotonic.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        rate_per_s: int = MESSAGES_PER_SECOND,
        clock_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate_per_s = rate_per_s
        self._clock_s = clock_s
        self._sleep = sleep
        self._paid_until_s = clock_s() - 1

    async def wait(self) -> None:
        """Return when the next message may be read."""
        now_s = self._clock_s()
        # What was not used counts for a second.
        self._paid_until_s = max(self._paid_until_s, now_s - 1) + 1 / self._rate_per_s
        if self._paid_until_s > now_s:
            await self._sleep(self._paid_until_s - now_s)
