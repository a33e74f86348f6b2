"""Leaving a server that goes away, as soon as there is another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from earvoice.client.event import EndOfUtterance, GoAway

if TYPE_CHECKING:
    from collections.abc import Callable

    from earvoice.client.event import TranslationEvent
    from earvoice.client.server_channels import ServerChannel, ServerChannels

LOOK_INTERVAL_S = 1.0
PATIENCE = 0.7
"""Share of the grace in which the end of an utterance is waited for: it is the best place to go."""


class Departure:
    """Looks for another server once this one has said that it goes away.

    Args:
        channels: to all of them.
        leaving: to the one that may go away.
        now_s: a monotonic clock in seconds.
    """

    def __init__(
        self, channels: ServerChannels, leaving: ServerChannel, now_s: Callable[[], float]
    ) -> None:
        self._channels = channels
        self._leaving = leaving
        self._now_s = now_s
        self._search: asyncio.Task[None] | None = None
        self._latest_s = 0.0

    def is_due(self, event: TranslationEvent | None) -> bool:
        """Say whether to leave now.

        Args:
            event: told just now; None for silence.
        """
        if isinstance(event, GoAway) and self._search is None:
            self._latest_s = self._now_s() + event.grace_ms / 1000 * PATIENCE
            self._search = asyncio.create_task(self._find())
        if self._search is None or not self._search.done():
            return False
        self._search.result()
        return isinstance(event, EndOfUtterance) or self._now_s() >= self._latest_s

    async def close(self) -> None:
        """Look no more."""
        if self._search is not None:
            self._search.cancel()
            await asyncio.wait({self._search})

    async def _find(self) -> None:
        while not await self._channels.find_other(self._leaving):  # noqa: ASYNC110 - remote
            await asyncio.sleep(LOOK_INTERVAL_S)
