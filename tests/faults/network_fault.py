"""What goes wrong with the network while streams run."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass
from typing import ClassVar

from tests.faults.cluster import Cluster
from tests.faults.fault import PROXIED, Fault

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
        """For the table."""
        return f"connections to the {self.service} reset"

    async def strike(self, cluster: Cluster) -> None:
        """Reset."""
        for proxy in cluster.proxies[self.service]:
            proxy.reset()


@dataclass(frozen=True)
class BlackHole(Fault):
    """Nothing passes to or from the first replica for a while; no connection is closed."""

    service: str
    cluster: ClassVar[str] = PROXIED

    @property
    def name(self) -> str:
        """For the table."""
        return f"black hole before one {self.service} for {BLACK_HOLE_S:g} s"

    async def strike(self, cluster: Cluster) -> None:
        """Swallow, then release."""
        proxy = cluster.proxies[self.service][0]
        proxy.swallow()
        await asyncio.sleep(BLACK_HOLE_S)
        proxy.release()


@dataclass(frozen=True)
class Delay(Fault):
    """Everything takes longer from now on, in both directions."""

    services: tuple[str, ...]
    delay_s: float
    cluster: ClassVar[str] = PROXIED

    @property
    def name(self) -> str:
        """For the table."""
        return f"{1000 * self.delay_s:.0f} ms more each way to {' and '.join(self.services)}"

    async def strike(self, cluster: Cluster) -> None:
        """Slow down."""
        for service in self.services:
            for proxy in cluster.proxies[service]:
                proxy.delay_s = self.delay_s

    async def mend(self, cluster: Cluster) -> None:
        """Be as fast as before."""
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
        """Lose none."""
        await _change_rules("-F", "INPUT")


async def _change_rules(*arguments: str) -> None:
    await asyncio.to_thread(subprocess.run, ["iptables", *arguments], check=True)
