"""Replicas of all services, as an operator would run them on one machine."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.tool import free_port
from tests.e2e.running import LoneService
from tests.proxy import Proxy, open_proxy

SERVICES = ("encoder", "decoder", "policy")
GATEWAY = "gateway"
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
TROUBLE = (
    "Traceback",
    "unexpected error",
    "never awaited",
    "Segmentation fault",
    '"status": "INTERNAL"',
)


class Replica:
    """A replica that can be hurt.

    Args:
        log_folder: gets its logs.
        log_is_piped: a process of its own reads them, see `log_reader`.

    Attributes:
        address: ``host:port``, once it has been started; it stays the same.
        clock_file: says how far its wall clock is off, where it runs on a false one.
    """

    def __init__(
        self,
        service: str,
        number: int,
        folder: Path,
        settings: Mapping[str, str],
        environment: Mapping[str, str],
        *,
        log_folder: Path | None = None,
        log_is_piped: bool = False,
    ) -> None:
        self.service = service
        self.name = f"{service}-{number}"
        self.address = ""
        self.clock_file = folder / f"{self.name}-clock"
        self._folder = folder
        self._log_folder = log_folder or folder
        self._log_is_piped = log_is_piped
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

    @property
    def metrics_address(self) -> str:
        """Where it answers Prometheus."""
        return f"http://127.0.0.1:{self._settings['METRICS_PORT']}/metrics"

    def run_on_false_clock(self, library: Path) -> None:
        """Have its wall clock follow `clock_file` within a second; the monotonic one stays true."""
        self.clock_file.parent.mkdir(parents=True, exist_ok=True)
        self.clock_file.write_text("+0\n")
        self._environment |= {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock_file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    async def start(self) -> None:
        port = self.address.rpartition(":")[2] or "0"
        name = f"{self.name}-run-{len(self._runs)}"
        self._log_folder.mkdir(parents=True, exist_ok=True)
        self._runs.append(
            LoneService(
                self.service,
                self._folder / name,
                [f"earvoice.{self.service}"],
                {**self._settings, "PORT": port},
                self._environment,
                log_file=self._log_folder / f"{name}.log",
                log_is_piped=self._log_is_piped,
            )
        )
        self.address = await asyncio.to_thread(self._run.address)

    async def kill(self) -> None:
        await asyncio.to_thread(self._run.kill)

    def freeze(self) -> None:
        """SIGSTOP: its connections stay open, and nothing answers."""
        self._run.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._run.process.send_signal(signal.SIGCONT)

    @property
    def log_reader(self) -> subprocess.Popen[bytes]:
        """What reads the log of the process that runs now."""
        assert self._run.log_reader is not None
        return self._run.log_reader

    async def terminate(self) -> int:
        """SIGTERM, and the exit code; one that has ended already keeps the code it ended with."""
        if not self._runs:
            return 0
        return await asyncio.to_thread(self._run.stop)

    def new_troubles(self) -> list[str]:
        """What its logs should not hold, since this was asked last: how often, and the first."""
        lines = [line for run in self._runs for line in run.log.splitlines()]
        found = {words: [line for line in lines if words in line] for words in TROUBLE}
        known = self._known_troubles
        self._known_troubles = Counter({words: len(told) for words, told in found.items()})
        return [
            f"{self.name} logged {words!r}, {len(new)} times: {new[0]}"
            for words, told in found.items()
            if (new := told[known[words] :])
        ]


DRAIN_GRACE_MS = 6000
# Not a key of anybody's: all policy replicas of a run must have the same one.
RESUME_KEY = "6a" * 32
SETTINGS = {
    "DRAIN_GRACE_MS": str(DRAIN_GRACE_MS),
    # The table is about faults: no replica may be full.
    "SESSION_LIMIT": "64",
}
# Who is late because the machine has no time is not sent away.
GATEWAY_SETTINGS = {"DRAIN_GRACE_MS": str(DRAIN_GRACE_MS), "START_TIMEOUT_MS": "60000"}


@dataclass(frozen=True)
class ClusterPlan:
    """What runs.

    Attributes:
        proxied: whether a proxy stands in front of every replica.
        trace_folder: where each writes its spans; None for none.
        for_storms: what else can be hurt is there: a gateway, logs that are read through pipes or
            written to the disk of the spans, wall clocks of their own, metrics.
    """

    replica_count: int
    proxied: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    trace_folder: Path | None = None
    for_storms: bool = False


class Cluster:
    """Running replicas, and the proxies in front of them."""

    def __init__(self, plan: ClusterPlan, folder: Path) -> None:
        self.plan = plan
        services = (*SERVICES, GATEWAY) if plan.for_storms else SERVICES
        self.replicas: dict[str, list[Replica]] = {service: [] for service in services}
        self.proxies: dict[str, list[Proxy]] = {service: [] for service in services}
        self.temporary = folder / "temporary"
        self._troubles: list[str] = []
        self.folder = folder

    async def start(self, stack: AsyncExitStack) -> None:
        await asyncio.gather(*(self._start(service, stack, {}) for service in SERVICES[:2]))
        targets = {f"{s.upper()}_TARGET": ",".join(self.addresses(s)) for s in SERVICES[:2]}
        await self._start("policy", stack, {**targets, "RESUME_KEYS": RESUME_KEY})
        if self.plan.for_storms:
            await self._start(GATEWAY, stack, {"SERVER": ",".join(self.addresses("policy"))})

    @property
    def every(self) -> list[Replica]:
        return [replica for replicas in self.replicas.values() for replica in replicas]

    def addresses(self, service: str) -> list[str]:
        if self.plan.proxied:
            return [proxy.address for proxy in self.proxies[service]]
        return [replica.address for replica in self.replicas[service]]

    def ports(self) -> list[int]:
        return [int(replica.address.rpartition(":")[2]) for replica in self.every]

    def complain(self, trouble: str) -> None:
        self._troubles.append(trouble)

    def take_troubles(self) -> list[str]:
        """Return what has been noted or logged since this was asked last."""
        logged = [trouble for replica in self.every for trouble in replica.new_troubles()]
        noted, self._troubles = self._troubles, []
        return noted + logged

    async def stop(self) -> None:
        """Stop who asks before who is asked; note who does not end well."""
        for services in ((GATEWAY,), ("policy",), ("encoder", "decoder")):
            replicas = [r for s in services for r in self.replicas.get(s, ())]
            await asyncio.gather(*map(self._stop, replicas))

    async def _start(self, service: str, stack: AsyncExitStack, settings: dict[str, str]) -> None:
        count = 1 if service == GATEWAY else self.plan.replica_count
        self.replicas[service] = [self._replica(service, n, settings) for n in range(count)]
        await asyncio.gather(*(replica.start() for replica in self.replicas[service]))
        if self.plan.proxied:
            proxies = [open_proxy(replica.address) for replica in self.replicas[service]]
            self.proxies[service] = [await stack.enter_async_context(proxy) for proxy in proxies]

    def _replica(self, service: str, number: int, settings: dict[str, str]) -> Replica:
        plan, traces = self.plan, self.plan.trace_folder
        # Words are compared with those of an undisturbed run, whatever this machine is fast in.
        environment = {f"EARVOICE_{it}_PRECISION": "fp32" for it in ("ENCODER", "DECODER")}
        environment, log_folder = environment | dict(plan.environment), None
        own = GATEWAY_SETTINGS if service == GATEWAY else SETTINGS
        own = own | settings
        if traces and service != GATEWAY:
            own["TRACE_FILE"] = str(traces / f"{service}-{number}.jsonl")
        if plan.for_storms:
            self.temporary.mkdir(exist_ok=True)
            environment["TMPDIR"] = str(self.temporary)
            own["METRICS_PORT"] = str(free_port())
            log_folder = traces / "logs" if traces and number else None
        replica = Replica(
            service,
            number,
            self.folder,
            own,
            environment,
            log_folder=log_folder,
            log_is_piped=plan.for_storms and log_folder is None,
        )
        if plan.for_storms and FAKETIME is not None:
            replica.run_on_false_clock(FAKETIME)
        return replica

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
