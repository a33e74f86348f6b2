"""What goes wrong around the services: the disk, and the collector of their spans."""

from __future__ import annotations

import asyncio
import errno
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.faults.cluster import Cluster, ClusterPlan
from tests.faults.fault import Fault

DISK_SIZE = "512k"
BLOCK = bytes(4096)


@dataclass(frozen=True)
class FullDisk(Fault):
    """The disk that every service writes its spans to is full."""

    name: ClassVar[str] = "full disk"
    cluster: ClassVar[str] = name

    @asynccontextmanager
    async def plan(self, replica_count: int, folder: Path) -> AsyncIterator[ClusterPlan]:
        """Give a cluster that writes its spans to a tiny disk."""
        disk = folder / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "earvoice-faults", str(disk)]
        await asyncio.to_thread(subprocess.run, mount, check=True)
        try:
            yield ClusterPlan(replica_count, trace_folder=disk)
        finally:
            await asyncio.to_thread(subprocess.run, ["umount", str(disk)], check=True)

    async def strike(self, cluster: Cluster) -> None:
        """Fill what is left of it."""
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
        """Give a cluster that exports its spans to nobody."""
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
