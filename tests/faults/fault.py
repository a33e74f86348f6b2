"""What goes wrong with processes while streams run."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.faults.cluster import Cluster, ClusterPlan

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
    """The first replica is killed, and started again a second later."""

    service: str

    @property
    def name(self) -> str:
        """For the table."""
        return f"SIGKILL of one {self.service}"

    async def strike(self, cluster: Cluster) -> None:
        """Kill and start again."""
        replica = cluster.replicas[self.service][0]
        await replica.kill()
        await asyncio.sleep(RESTART_AFTER_S)
        await replica.start()


@dataclass(frozen=True)
class Freeze(Fault):
    """The first replica stops, and goes on some seconds later as if nothing had been."""

    service: str

    @property
    def name(self) -> str:
        """For the table."""
        return f"SIGSTOP of one {self.service} for {FROZEN_S:g} s"

    async def strike(self, cluster: Cluster) -> None:
        """Stop and go on."""
        replica = cluster.replicas[self.service][0]
        replica.freeze()
        try:
            await asyncio.sleep(FROZEN_S)
        finally:
            replica.thaw()


@dataclass(frozen=True)
class RollingRestart(Fault):
    """Every replica of every service, one after the other: SIGTERM, and its successor."""

    stream_s: ClassVar[int] = 56
    name: ClassVar[str] = "rolling restart of everything"

    async def strike(self, cluster: Cluster) -> None:
        """Restart all."""
        for replicas in cluster.replicas.values():
            for replica in replicas:
                code = await replica.terminate()
                if code != 0:
                    cluster.complain(f"{replica.name} drained and ended with {code}")
                await replica.start()
