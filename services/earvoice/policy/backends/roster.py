"""Which replicas a service has: addresses that are given, and those that names lead to now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from earvoice.policy.backend_target import BackendTarget, NamedPort
from earvoice.policy.backends.access import BackendAccess
from earvoice.policy.backends.kind import BackendKind
from earvoice.policy.backends.lookup import look_up
from earvoice.policy.backends.replica import Replica

_LOG = logging.getLogger("earvoice.policy.backends")

LOOKUP_INTERVAL_S = 5.0
LEAST_LOOKUP_INTERVAL_S = 0.5


class ReplicaRoster:
    """One service's replicas, each with its health followed.

    Args:
        kind: which service.
        target: where they are.
        access: how we are let in.
        on_change: called when one becomes ready, or is no longer.
        addresses_of: looks a name up.
    """

    def __init__(
        self,
        kind: BackendKind,
        target: BackendTarget,
        access: BackendAccess,
        on_change: Callable[[], None],
        addresses_of: Callable[[NamedPort], Awaitable[list[str]]] = look_up,
    ) -> None:
        self._kind = kind
        self._target = target
        self._access = access
        self._on_change = on_change
        self._addresses_of = addresses_of
        self._replicas: dict[str, Replica] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._found: dict[NamedPort, list[str]] = {}
        self._lookup_due = asyncio.Event()

    @property
    def replicas(self) -> list[Replica]:
        """All of them, ready or not."""
        return list(self._replicas.values())

    async def run(self) -> None:
        """Look replicas up and follow their health until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for address in self._target.addresses:
                    self._add(group, address, self._access)
                while self._target.names:
                    await self._look_all_up(group)
                    await asyncio.sleep(LEAST_LOOKUP_INTERVAL_S)
                    await wait_at_most(self._lookup_due, LOOKUP_INTERVAL_S)
                    self._lookup_due.clear()
        finally:
            for replica in self.replicas:
                await replica.close()

    def look_up_soon(self) -> None:
        """Look the names up before it is time: a replica is lost, and another may be there."""
        self._lookup_due.set()

    async def _look_all_up(self, group: asyncio.TaskGroup) -> None:
        for named in self._target.names:
            try:
                self._found[named] = await self._addresses_of(named)
            except OSError as error:
                # Those found before stay: whether they serve, they say themselves.
                _LOG.warning("%s cannot be looked up: %s", named.name, error)
                continue
            for address in self._found[named]:
                if address not in self._replicas:
                    self._add(group, address, self._access.named(named.name))
        await self._settle({*self._target.addresses, *_all(self._found.values())})

    async def _settle(self, listed: set[str]) -> None:
        """Send no more sessions to a replica that is no longer listed; forget it without any."""
        for address, replica in [*self._replicas.items()]:
            was_ready, replica.is_listed = replica.is_ready, address in listed
            if replica.is_ready != was_ready:
                self._on_change()
            if not replica.is_listed and not replica.session_count:
                self._watches.pop(address).cancel()
                del self._replicas[address]
                await replica.close()

    def _add(self, group: asyncio.TaskGroup, address: str, access: BackendAccess) -> None:
        replica = Replica(self._kind, address, access, self._on_change)
        self._replicas[address] = replica
        self._watches[address] = group.create_task(replica.watch())


async def wait_at_most(event: asyncio.Event, timeout_s: float) -> None:
    """Return when the event is set, or after that time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


def _all(lists: Iterable[list[str]]) -> Iterable[str]:
    return (address for addresses in lists for address in addresses)
