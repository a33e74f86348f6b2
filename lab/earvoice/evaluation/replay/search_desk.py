"""Where all sessions' searches meet, so that they are made together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

TaskT = TypeVar("TaskT")


class SearchDesk(Generic[TaskT]):
    """Collects tasks until every session waits, then does them all. Belongs to one event loop.

    Args:
        work: does the tasks.
    """

    def __init__(self, work: Callable[[Sequence[TaskT]], None]) -> None:
        self._work = work
        self._waiting: dict[Hashable, tuple[TaskT, asyncio.Future[TaskT]]] = {}

    async def done(self, key: Hashable, make: Callable[[], TaskT]) -> TaskT:
        """Return a task that has been done.

        Args:
            key: of the task; who asks for one that waits already waits with it.
            make: makes the task, when it is new.
        """
        if key not in self._waiting:
            loop = asyncio.get_running_loop()
            if not self._waiting:
                loop.call_soon(self._work_when_all_wait, 0)
            self._waiting[key] = (make(), loop.create_future())
        # Shielded: a session that is cancelled must not cancel those that wait with it.
        return await asyncio.shield(self._waiting[key][1])

    def _work_when_all_wait(self, asked_before: int) -> None:
        """Work once a round of the event loop has brought no new task."""
        if len(self._waiting) > asked_before:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._work_when_all_wait, len(self._waiting))
            return
        waiting, self._waiting = self._waiting, {}
        try:
            self._work([task for task, _ in waiting.values()])
        except Exception as error:  # noqa: BLE001 - handed on to all that wait
            for _, done in waiting.values():
                done.set_exception(error)
        else:
            for task, done in waiting.values():
                done.set_result(task)
