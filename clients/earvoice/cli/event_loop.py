"""Running a command's coroutine so that a signal ends it in good order."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SignalledError(Exception):
    """A signal ended the command; everything it had started was stopped.

    Args:
        signal_number: which one.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"ended by {signal.Signals(signal_number).name}")
        self.signal_number = signal_number


class Interruption:
    """What a signal does to a running command: it cancels it, and so lets it clean up.

    Args:
        task: the command's task.
    """

    def __init__(self, task: asyncio.Task[int]) -> None:
        self._task = task
        self._instead: Callable[[], None] | None = None
        self.signal_number: int | None = None

    def call_instead(self, callback: Callable[[], None]) -> None:
        """Let the next Ctrl-C call this instead of ending the command; the one after ends it."""
        self._instead = callback

    def receive(self, signal_number: int) -> None:
        """Take a signal."""
        if signal_number == signal.SIGINT and self._instead is not None:
            callback, self._instead = self._instead, None
            callback()
            return
        self.signal_number = signal_number
        self._task.cancel()


def run_async(command: Callable[[Interruption], Coroutine[Any, Any, int]]) -> int:
    """Run a command to its exit status.

    Raises:
        SignalledError: SIGINT or SIGTERM ended it.
    """
    return asyncio.run(_run(command))


async def _run(command: Callable[[Interruption], Coroutine[Any, Any, int]]) -> int:
    ready = asyncio.get_running_loop().create_future()

    async def started() -> int:
        return await command(await ready)

    task = asyncio.create_task(started())
    interruption = Interruption(task)
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, interruption.receive, number)
    ready.set_result(interruption)
    try:
        return await task
    except asyncio.CancelledError:
        if interruption.signal_number is None:
            raise
        raise SignalledError(interruption.signal_number) from None
