"""Notices that a replica that owes us something has fallen silent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from earvoice.policy.backends.loss import ReplicaLostError
from earvoice.policy.backends.patience import Patience
from earvoice.policy.backends.replica import Replica


class SilenceWatch:
    """Watches one wait for a replica: for an answer, or for room to write.

    After half the patience the replica is asked for its health. One that answers within the other
    half is slow and is waited for, within limits; a process that is stopped, or cut off, is silent.

    Args:
        replica: that is waited for.
        patience: with it.
        give_up: called once when it is silent, or has been slow for too long.
    """

    def __init__(
        self, replica: Replica, patience: Patience, give_up: Callable[[ReplicaLostError], None]
    ) -> None:
        self._replica = replica
        self._patience = patience
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._asking: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        """Begin to wait: nearly always an answer comes long before anything is asked."""
        self._began_s = self._loop.time()
        self._timer = self._loop.call_later(self._patience.answer_s / 2, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        """The wait is over."""
        self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def _ask(self) -> None:
        self._asking = self._loop.create_task(self._watch_health())

    async def _watch_health(self) -> None:
        service, half_s = self._replica.kind.name, self._patience.answer_s / 2
        limit_s = self._patience.slow_answer_s
        while await self._replica.is_alive(half_s):
            if self._loop.time() - self._began_s >= limit_s:
                slow = f"the {service} has not answered for {limit_s:g} s, though it runs"
                self._give_up(ReplicaLostError(slow))
                return
            await asyncio.sleep(half_s)
        silent_s = self._patience.answer_s
        self._give_up(ReplicaLostError(f"the {service} has not answered for {silent_s:g} s"))
