"""Replicas of all services, as an operator would run them on one machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.proxy import Proxy, open_proxy
from tests.faults.replica import SERVICES, Replica

DRAIN_GRACE_MS = 6000
# Not a key of anybody's: all policy replicas of a run must have the same one.
RESUME_KEY = "6a" * 32
SETTINGS = {
    "DRAIN_GRACE_MS": str(DRAIN_GRACE_MS),
    # The table is about faults: no replica may be full.
    "SESSION_LIMIT": "64",
}


@dataclass(frozen=True)
class ClusterPlan:
    """What runs.

    Attributes:
        replica_count: of each service.
        proxied: whether a proxy stands in front of every replica.
        environment: further variables of every process.
        trace_folder: where each writes its spans; None for none.
    """

    replica_count: int
    proxied: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    trace_folder: Path | None = None


class Cluster:
    """Running replicas, and the proxies in front of them.

    Args:
        plan: what runs.
        folder: for the logs.

    Attributes:
        replicas: by service.
        proxies: by service, in the same order; none where the plan has none.
    """

    def __init__(self, plan: ClusterPlan, folder: Path) -> None:
        self.plan = plan
        self.replicas: dict[str, list[Replica]] = {service: [] for service in SERVICES}
        self.proxies: dict[str, list[Proxy]] = {service: [] for service in SERVICES}
        self._troubles: list[str] = []
        self._folder = folder

    async def start(self, stack: AsyncExitStack) -> None:
        """Start everything; the stack closes the proxies."""
        await asyncio.gather(*(self._start(service, stack, {}) for service in SERVICES[:2]))
        targets = {f"{s.upper()}_TARGET": ",".join(self.addresses(s)) for s in SERVICES[:2]}
        await self._start("policy", stack, {**targets, "RESUME_KEYS": RESUME_KEY})

    def addresses(self, service: str) -> list[str]:
        """Where to reach a service: its replicas, or the proxies in front of them."""
        if self.plan.proxied:
            return [proxy.address for proxy in self.proxies[service]]
        return [replica.address for replica in self.replicas[service]]

    def ports(self) -> list[int]:
        """Of all replicas."""
        every = [replica for service in SERVICES for replica in self.replicas[service]]
        return [int(replica.address.rpartition(":")[2]) for replica in every]

    def complain(self, trouble: str) -> None:
        """Note what should not be."""
        self._troubles.append(trouble)

    def take_troubles(self) -> list[str]:
        """Return what has been noted or logged since this was asked last."""
        every = [replica for service in SERVICES for replica in self.replicas[service]]
        logged = [trouble for replica in every for trouble in replica.new_troubles()]
        noted, self._troubles = self._troubles, []
        return noted + logged

    async def stop(self) -> None:
        """Stop the policies first, then the others; note who does not end well."""
        for services in (("policy",), ("encoder", "decoder")):
            await asyncio.gather(*(self._stop(r) for s in services for r in self.replicas[s]))

    async def _start(self, service: str, stack: AsyncExitStack, settings: dict[str, str]) -> None:
        count = self.plan.replica_count
        self.replicas[service] = [self._replica(service, n, settings) for n in range(count)]
        await asyncio.gather(*(replica.start() for replica in self.replicas[service]))
        if self.plan.proxied:
            proxies = [open_proxy(replica.address) for replica in self.replicas[service]]
            self.proxies[service] = [await stack.enter_async_context(proxy) for proxy in proxies]

    def _replica(self, service: str, number: int, settings: dict[str, str]) -> Replica:
        traces = self.plan.trace_folder
        spans = {"TRACE_FILE": str(traces / f"{service}-{number}.jsonl")} if traces else {}
        return Replica(
            service, number, self._folder, SETTINGS | settings | spans, self.plan.environment
        )

    async def _stop(self, replica: Replica) -> None:
        code = await replica.terminate()
        if code != 0:
            self.complain(f"{replica.name} ended with {code}")


@asynccontextmanager
async def running_cluster(plan: ClusterPlan, folder: Path) -> AsyncIterator[Cluster]:
    """Give a cluster that serves, and stop it."""
    cluster = Cluster(plan, folder)
    async with AsyncExitStack() as stack:
        try:
            await cluster.start(stack)
            yield cluster
        finally:
            await cluster.stop()
