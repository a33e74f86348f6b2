"""Keeping a child process alive: when it dies it is started again, on the same port."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from earvoice.cli.backoff import Backoff
from earvoice.cli.child_process import ChildProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from earvoice.cli.child_process import ChildPlan
    from earvoice.cli.log_relay import LogRelay


class SupervisedChild:
    """A child that is kept alive between ``start`` and ``stop``.

    Args:
        plan: how to run it.
        relay: where its lines go.
        notify: told when it dies and is started again.
        backoff: how long to wait before that.
    """

    def __init__(
        self,
        plan: ChildPlan,
        relay: LogRelay,
        notify: Callable[[str], None],
        backoff: Backoff | None = None,
    ) -> None:
        self._plan = plan
        self._relay = relay
        self._notify = notify
        self._backoff = backoff or Backoff()
        self._child: ChildProcess | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Start the child and return its ``host:port`` once it serves.

        Raises:
            ServiceStartError: it did not come to serve; a first failure is not tried again,
                since it is nearly always the configuration.
        """
        self._child = await ChildProcess.spawn(self._plan, self._plan.port, self._relay)
        address = await self._child.wait_until_serving()
        port = int(address.rpartition(":")[2])
        self._keeper = asyncio.create_task(self._keep_alive(port))
        return address

    async def watch(self) -> None:
        """Return never; raise what ends the supervision unexpectedly."""
        if self._keeper is not None:
            await asyncio.shield(self._keeper)

    async def stop(self) -> None:
        """End the supervision, then the child."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        if self._child is not None:
            await self._child.stop()

    async def _keep_alive(self, port: int) -> None:
        deaths_in_a_row = 0
        while self._child is not None:
            born_s = time.monotonic()
            status = await self._child.wait()
            deaths_in_a_row = self._backoff.count(deaths_in_a_row, time.monotonic() - born_s)
            delay_s = self._backoff.delay_s(deaths_in_a_row)
            self._notify(
                f"the {self._plan.name} ended with {status}; starting it again in {delay_s:g} s"
            )
            await asyncio.sleep(delay_s)
            self._child = await ChildProcess.spawn(self._plan, port, self._relay)
