"""What goes wrong while streams run, with processes, the network and their surroundings."""

from __future__ import annotations

import asyncio
import errno
import subprocess
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.faults.cluster import SERVICES, Cluster, ClusterPlan, Replica

# As a supervisor starts it again: `earvoice up`, or Kubernetes.
RESTART_AFTER_S = 1.0
FROZEN_S = 12.0

DIRECT = "direct"
"""Clients and services reach replicas at their own addresses."""
PROXIED = "proxied"
"""A proxy stands in front of every replica."""


class Fault(ABC):
    """Something that goes wrong.

    Attributes:
        stream_s: how long the streams must be for it.
        cluster: what kind of cluster it needs; faults of the same kind meet the same one.
    """

    stream_s: ClassVar[int] = 26
    cluster: ClassVar[str] = DIRECT

    @property
    @abstractmethod
    def name(self) -> str:
        """For the table."""

    @asynccontextmanager
    async def plan(self, replica_count: int, folder: Path) -> AsyncIterator[ClusterPlan]:
        """Give what the cluster must be like, for as long as it runs."""
        del folder
        yield ClusterPlan(replica_count, proxied=self.cluster == PROXIED)

    @abstractmethod
    async def strike(self, cluster: Cluster) -> None:
        """Let it happen; what goes by itself has gone when this returns."""

    async def mend(self, cluster: Cluster) -> None:  # noqa: B027 - most faults go by themselves
        """Undo what stays, after the streams."""


@dataclass(frozen=True)
class Nothing(Fault):
    """Live streams on a machine where nothing goes wrong, to compare with."""

    name: ClassVar[str] = "nothing"

    async def strike(self, cluster: Cluster) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Kill(Fault):
    """A replica is killed, and started again a second later."""

    service: str
    number: int = 0

    @property
    def name(self) -> str:
        return f"SIGKILL of one {self.service}"

    async def strike(self, cluster: Cluster) -> None:
        replica = cluster.replicas[self.service][self.number]
        await replica.kill()
        await asyncio.sleep(RESTART_AFTER_S)
        await replica.start()


@dataclass(frozen=True)
class Freeze(Fault):
    """A replica stops, and goes on some seconds later as if nothing had been."""

    service: str
    number: int = 0
    harm_s: float = FROZEN_S

    @property
    def name(self) -> str:
        return f"SIGSTOP of one {self.service} for {self.harm_s:.3g} s"

    async def strike(self, cluster: Cluster) -> None:
        replica = cluster.replicas[self.service][self.number]
        replica.freeze()
        try:
            await asyncio.sleep(self.harm_s)
        finally:
            replica.thaw()


@dataclass(frozen=True)
class RollingRestart(Fault):
    """Every replica of every service, one after the other: SIGTERM, and its successor."""

    stream_s: ClassVar[int] = 56
    name: ClassVar[str] = "rolling restart of everything"

    async def strike(self, cluster: Cluster) -> None:
        for replicas in cluster.replicas.values():
            for replica in replicas:
                await restart(replica, cluster)


async def restart(replica: Replica, cluster: Cluster) -> None:
    """SIGTERM, and its successor."""
    code = await replica.terminate()
    if code != 0:
        cluster.complain(f"{replica.name} drained and ended with {code}")
    await replica.start()


@dataclass(frozen=True)
class Drain(Fault):
    """A replica is stopped in good order, and followed by another."""

    service: str
    number: int = 0

    @property
    def name(self) -> str:
        return f"restart of one {self.service}"

    async def strike(self, cluster: Cluster) -> None:
        await restart(cluster.replicas[self.service][self.number], cluster)


BLACK_HOLE_S = 12.0
LOST_SHARE = 0.02
# Each way: twice this is a round trip.
CLIENT_DELAY_S = 0.2
BACKEND_DELAY_S = 0.1


@dataclass(frozen=True)
class Reset(Fault):
    """Every connection to a service is reset at once."""

    service: str
    cluster: ClassVar[str] = PROXIED

    @property
    def name(self) -> str:
        return f"connections to the {self.service} reset"

    async def strike(self, cluster: Cluster) -> None:
        for proxy in cluster.proxies[self.service]:
            proxy.reset()


@dataclass(frozen=True)
class BlackHole(Fault):
    """Nothing passes to or from a replica for a while; no connection is closed."""

    service: str
    number: int = 0
    harm_s: float = BLACK_HOLE_S
    cluster: ClassVar[str] = PROXIED

    @property
    def name(self) -> str:
        return f"black hole before one {self.service} for {self.harm_s:.3g} s"

    async def strike(self, cluster: Cluster) -> None:
        proxy = cluster.proxies[self.service][self.number]
        proxy.swallow()
        await asyncio.sleep(self.harm_s)
        proxy.release()


@dataclass(frozen=True)
class Delay(Fault):
    """Everything takes longer from now on, in both directions."""

    services: tuple[str, ...]
    delay_s: float
    cluster: ClassVar[str] = PROXIED

    @property
    def name(self) -> str:
        return f"{1000 * self.delay_s:.0f} ms more each way to {' and '.join(self.services)}"

    async def strike(self, cluster: Cluster) -> None:
        for service in self.services:
            for proxy in cluster.proxies[service]:
                proxy.delay_s = self.delay_s

    async def mend(self, cluster: Cluster) -> None:
        for service in self.services:
            for proxy in cluster.proxies[service]:
                proxy.delay_s = 0.0


@dataclass(frozen=True)
class Loss(Fault):
    """Packets of every connection are lost from now on, in both directions."""

    name: ClassVar[str] = f"{LOST_SHARE:.0%} of all packets lost"

    async def strike(self, cluster: Cluster) -> None:
        """Lose packets, in the network namespace that the table runs in."""
        chance = ["-m", "statistic", "--mode", "random", "--probability", str(LOST_SHARE)]
        for port in cluster.ports():
            for end in ("--dport", "--sport"):
                chosen = ["-A", "INPUT", "-i", "lo", "-p", "tcp", end, str(port)]
                await _change_rules(*chosen, *chance, "-j", "DROP")

    async def mend(self, cluster: Cluster) -> None:
        await _change_rules("-F", "INPUT")


async def _change_rules(*arguments: str) -> None:
    await asyncio.to_thread(subprocess.run, ["iptables", *arguments], check=True)


DISK_SIZE = "512k"
BLOCK = bytes(4096)


@dataclass(frozen=True)
class FullDisk(Fault):
    """The disk that every service writes its spans to is full."""

    name: ClassVar[str] = "full disk"
    cluster: ClassVar[str] = name

    @asynccontextmanager
    async def plan(self, replica_count: int, folder: Path) -> AsyncIterator[ClusterPlan]:
        disk = folder / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "earvoice-faults", str(disk)]
        await asyncio.to_thread(subprocess.run, mount, check=True)
        try:
            yield ClusterPlan(replica_count, trace_folder=disk)
        finally:
            await asyncio.to_thread(subprocess.run, ["umount", str(disk)], check=True)

    async def strike(self, cluster: Cluster) -> None:
        disk = cluster.plan.trace_folder
        assert disk is not None
        with (disk / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(BLOCK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


@dataclass(frozen=True)
class HangingCollector(Fault):
    """The collector takes connections and never answers."""

    name: ClassVar[str] = "hanging collector"
    cluster: ClassVar[str] = name

    @asynccontextmanager
    async def plan(self, replica_count: int, folder: Path) -> AsyncIterator[ClusterPlan]:
        del folder
        connections: set[asyncio.StreamWriter] = set()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            del reader
            connections.add(writer)

        async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            endpoint = f"http://127.0.0.1:{port}"
            yield ClusterPlan(replica_count, environment={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
            for connection in connections:
                connection.transport.abort()

    async def strike(self, cluster: Cluster) -> None:
        """It has hung from the start."""


FAULTS: tuple[Fault, ...] = (
    Nothing(),
    *(Kill(service) for service in SERVICES),
    *(Freeze(service) for service in SERVICES),
    RollingRestart(),
    Loss(),
    *(Reset(service) for service in SERVICES),
    *(BlackHole(service) for service in SERVICES),
    Delay(("policy",), CLIENT_DELAY_S),
    Delay(("encoder", "decoder"), BACKEND_DELAY_S),
    FullDisk(),
    HangingCollector(),
)
# These change rules of the network, or mount a disk.
NEED_ISOLATION = (Loss, FullDisk)
