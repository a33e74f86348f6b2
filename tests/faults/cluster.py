"""Replicas of all services, as an operator would run them on one machine."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.running import LoneService
from tests.proxy import Proxy, open_proxy

SERVICES = ("encoder", "decoder", "policy")
TROUBLE = ("Traceback", "unexpected error", "never awaited", "Segmentation fault")


class Replica:
    """A replica that can be hurt.

    Attributes:
        address: ``host:port``, once it has been started; it stays the same.
    """

    def __init__(
        self,
        service: str,
        number: int,
        folder: Path,
        settings: Mapping[str, str],
        environment: Mapping[str, str],
    ) -> None:
        self.service = service
        self.name = f"{service}-{number}"
        self.address = ""
        self._folder = folder
        self._settings = dict(settings)
        self._environment = dict(environment)
        self._runs: list[LoneService] = []
        self._known_troubles: Counter[str] = Counter()

    @property
    def _run(self) -> LoneService:
        return self._runs[-1]

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        return self._run.process.pid

    async def start(self) -> None:
        port = self.address.rpartition(":")[2] or "0"
        self._runs.append(
            LoneService(
                self.service,
                self._folder / f"{self.name}-run-{len(self._runs)}",
                [f"earvoice.{self.service}"],
                {**self._settings, "PORT": port},
                self._environment,
            )
        )
        self.address = await asyncio.to_thread(self._run.address)

    async def kill(self) -> None:
        self._run.process.kill()
        await asyncio.to_thread(self._run.process.wait)

    def freeze(self) -> None:
        """SIGSTOP: its connections stay open, and nothing answers."""
        self._run.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._run.process.send_signal(signal.SIGCONT)

    async def terminate(self) -> int:
        """SIGTERM, and the exit code; one that has ended already keeps the code it ended with."""
        if not self._runs:
            return 0
        return await asyncio.to_thread(self._run.stop)

    def new_troubles(self) -> list[str]:
        """What its logs should not hold, since this was asked last."""
        logs = "\n".join(run.log for run in self._runs)
        found = Counter({words: logs.count(words) for words in TROUBLE})
        new, self._known_troubles = found - self._known_troubles, found
        return [f"{self.name} logged {words!r}, {count} times" for words, count in new.items()]


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
        proxied: whether a proxy stands in front of every replica.
        trace_folder: where each writes its spans; None for none.
    """

    replica_count: int
    proxied: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    trace_folder: Path | None = None


class Cluster:
    """Running replicas, and the proxies in front of them."""

    def __init__(self, plan: ClusterPlan, folder: Path) -> None:
        self.plan = plan
        self.replicas: dict[str, list[Replica]] = {service: [] for service in SERVICES}
        self.proxies: dict[str, list[Proxy]] = {service: [] for service in SERVICES}
        self._troubles: list[str] = []
        self._folder = folder

    async def start(self, stack: AsyncExitStack) -> None:
        await asyncio.gather(*(self._start(service, stack, {}) for service in SERVICES[:2]))
        targets = {f"{s.upper()}_TARGET": ",".join(self.addresses(s)) for s in SERVICES[:2]}
        await self._start("policy", stack, {**targets, "RESUME_KEYS": RESUME_KEY})

    def addresses(self, service: str) -> list[str]:
        if self.plan.proxied:
            return [proxy.address for proxy in self.proxies[service]]
        return [replica.address for replica in self.replicas[service]]

    def ports(self) -> list[int]:
        every = [replica for service in SERVICES for replica in self.replicas[service]]
        return [int(replica.address.rpartition(":")[2]) for replica in every]

    def complain(self, trouble: str) -> None:
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
    cluster = Cluster(plan, folder)
    async with AsyncExitStack() as stack:
        try:
            await cluster.start(stack)
            yield cluster
        finally:
            await cluster.stop()
