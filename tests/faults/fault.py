"""What goes wrong while streams run, with processes, the network and their surroundings."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import select
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import grpc
import psutil
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import WebSocketException

from earvoice.api.v1.speech_translation_service_pb2_grpc import SpeechTranslationServiceStub
from earvoice.client import AudioFormat, TranslationError, TranslationOptions, connect
from tests.faults.cluster import GATEWAY, SERVICES, Cluster, ClusterPlan, Replica
from tests.proxy import open_proxy

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
    """Nothing passes to or from a replica for a while; no connection is closed.

    Attributes:
        number: of the replica; None for all of them, a partition.
    """

    service: str
    number: int | None = 0
    harm_s: float = BLACK_HOLE_S
    cluster: ClassVar[str] = PROXIED

    @property
    def name(self) -> str:
        which = "every" if self.number is None else "one"
        return f"black hole before {which} {self.service} for {self.harm_s:.3g} s"

    async def strike(self, cluster: Cluster) -> None:
        proxies = cluster.proxies[self.service]
        for proxy in (chosen := proxies if self.number is None else [proxies[self.number]]):
            proxy.swallow()
        await asyncio.sleep(self.harm_s)
        for proxy in chosen:
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

    share: float = LOST_SHARE

    @property
    def name(self) -> str:
        return f"{self.share:.0%} of all packets lost"

    async def strike(self, cluster: Cluster) -> None:
        """Lose packets, in the network namespace that the table runs in."""
        chance = ["-m", "statistic", "--mode", "random", "--probability", str(self.share)]
        for port in cluster.ports():
            for end in ("--dport", "--sport"):
                chosen = ["-A", "INPUT", "-i", "lo", "-p", "tcp", end, str(port)]
                await _change_rules(*chosen, *chance, "-j", "DROP")

    async def mend(self, cluster: Cluster) -> None:
        await _change_rules("-F", "INPUT")


async def _change_rules(*arguments: str) -> None:
    await asyncio.to_thread(subprocess.run, ["iptables", *arguments], check=True)


DISK_SIZE = "512k"
FILLER = "filler"
BLOCK = bytes(4096)


@dataclass(frozen=True)
class FullDisk(Fault):
    """The disk that every service writes its spans to is full."""

    size: str = DISK_SIZE
    name: ClassVar[str] = "full disk"
    cluster: ClassVar[str] = name

    @asynccontextmanager
    async def plan(self, replica_count: int, folder: Path) -> AsyncIterator[ClusterPlan]:
        disk = folder / "disk"
        disk.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={self.size}", "earvoice-faults", str(disk)]
        await asyncio.to_thread(subprocess.run, mount, check=True)
        try:
            yield ClusterPlan(replica_count, trace_folder=disk)
        finally:
            await asyncio.to_thread(subprocess.run, ["umount", str(disk)], check=True)

    async def strike(self, cluster: Cluster) -> None:
        disk = cluster.plan.trace_folder
        assert disk is not None
        with (disk / FILLER).open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(BLOCK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    async def mend(self, cluster: Cluster) -> None:
        assert cluster.plan.trace_folder is not None
        (cluster.plan.trace_folder / FILLER).unlink(missing_ok=True)


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


@dataclass(frozen=True)
class Passing(Fault):
    """A fault that is mended after a while."""

    fault: Fault
    harm_s: float

    @property
    def name(self) -> str:
        return f"{self.fault.name} for {self.harm_s:.1f} s"

    async def strike(self, cluster: Cluster) -> None:
        await self.fault.strike(cluster)
        await asyncio.sleep(self.harm_s)
        await self.fault.mend(cluster)


@dataclass(frozen=True)
class LogReader(Fault):
    """Who reads a service's log from a pipe stops while the pipe is full, or dies."""

    service: str
    number: int
    harm_s: float | None

    @property
    def name(self) -> str:
        what = "dies" if self.harm_s is None else f"stops for {self.harm_s:.1f} s"
        return f"the reader of one {self.service}'s log {what}"

    async def strike(self, cluster: Cluster) -> None:
        replica = cluster.replicas[self.service][self.number]
        reader, writer = replica.log_reader, psutil.Process(replica.pid)
        if self.harm_s is None:
            reader.kill()
            return
        reader.send_signal(signal.SIGSTOP)
        # Opened anew: to wait for no room is then ours alone, not the service's.
        pipe = os.open(f"/proc/{writer.pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
        try:
            # A reader that died before has nothing left to stop.
            with suppress(BlockingIOError, BrokenPipeError):
                while True:
                    os.write(pipe, b"\n" * select.PIPE_BUF)
        finally:
            os.close(pipe)
        await asyncio.sleep(self.harm_s)
        reader.send_signal(signal.SIGCONT)


SPARE_DESCRIPTORS = 4
IDLE_CONNECTIONS = 32


@dataclass(frozen=True)
class Descriptors(Fault):
    """A process may open a few more files, and idle connections take them."""

    service: str
    number: int
    harm_s: float

    @property
    def name(self) -> str:
        return f"one {self.service} without descriptors for {self.harm_s:.1f} s"

    async def strike(self, cluster: Cluster) -> None:
        replica = cluster.replicas[self.service][self.number]
        process = psutil.Process(replica.pid)
        _, most = process.rlimit(psutil.RLIMIT_NOFILE)
        process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() + SPARE_DESCRIPTORS, most))
        host, _, port = replica.address.rpartition(":")
        try:
            async with AsyncExitStack() as connections:
                for _ in range(IDLE_CONNECTIONS):
                    connection = connections.enter_context(socket.socket())
                    connection.setblocking(False)
                    connection.connect_ex((host, int(port)))
                await asyncio.sleep(self.harm_s)
        finally:
            with suppress(psutil.NoSuchProcess):  # killed meanwhile, and followed by another
                process.rlimit(psutil.RLIMIT_NOFILE, (most, most))


@dataclass(frozen=True)
class ClockStep(Fault):
    """A replica's wall clock jumps, and stays there."""

    service: str
    number: int
    step_s: int

    @property
    def name(self) -> str:
        return f"the wall clock of one {self.service} jumps to {self.step_s:+d} s"

    async def strike(self, cluster: Cluster) -> None:
        cluster.replicas[self.service][self.number].clock_file.write_text(f"{self.step_s:+d}\n")


@dataclass(frozen=True)
class Guest(Fault):
    """A client that does not behave, beside those that are judged."""

    what: str
    number: int
    harm_s: float

    @property
    def name(self) -> str:
        return f"a client {self.what} for {self.harm_s:.1f} s"

    async def strike(self, cluster: Cluster) -> None:
        visit = GUESTS[self.what]
        behaving = asyncio.create_task(visit(cluster, self.number))
        try:
            await asyncio.wait({behaving}, timeout=self.harm_s)
        finally:
            behaving.cancel()
            await asyncio.wait({behaving})
        # It may have been refused, or sent away with a reason.
        told = None if behaving.cancelled() else behaving.exception()
        if told and not isinstance(told, TranslationError | OSError | WebSocketException):
            raise told


async def _say_much(reach: str, read: Callable[[object], None]) -> None:
    """Speak at full speed, and never end."""

    async def audio() -> AsyncIterator[bytes]:
        while True:
            yield random.Random(1).randbytes(32_000)
            await asyncio.sleep(0.2)

    options = TranslationOptions(("de",), AudioFormat(), interim=True, paced=False)
    async with connect(reach) as client:
        async for event in client.translate(audio(), options):
            read(event)


async def _speak_and_vanish(cluster: Cluster, number: int) -> None:
    await _say_much(cluster.addresses("policy")[number], lambda event: None)


async def _read_nothing(cluster: Cluster, number: int) -> None:
    """Its socket is read no more once its session has begun; what it says still comes."""
    async with open_proxy(cluster.addresses("policy")[number]) as proxy:
        await _say_much(proxy.address, lambda event: proxy.go_deaf())


async def _say_nothing(cluster: Cluster, number: int) -> None:
    """Many streams that never say what they want."""
    async with grpc.aio.insecure_channel(cluster.addresses("policy")[number]) as channel:
        stub = SpeechTranslationServiceStub(channel)
        calls = [stub.StreamingTranslate() for _ in range(64)]
        await asyncio.gather(*(call.read() for call in calls), return_exceptions=True)


async def _ignore_gateway(cluster: Cluster, number: int) -> None:
    """A page that speaks and reads nothing: its library stops reading after a few messages."""
    async with connect_websocket(
        f"ws://{cluster.addresses(GATEWAY)[0]}/v1/translate", max_queue=1, ping_interval=None
    ) as websocket:
        config = {"audioEncoding": "AUDIO_ENCODING_LINEAR16", "sampleRateHertz": 16_000}
        start = {"type": "start", "config": {**config, "targetLanguageCodes": ["de"]}}
        await websocket.send(json.dumps(start))
        while True:
            await websocket.send(bytes(32_000))
            await asyncio.sleep(0.2)


async def _stop_uploading(cluster: Cluster, number: int) -> None:
    """Half a recording, and no more."""
    host, _, port = cluster.addresses(GATEWAY)[0].rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"POST /v1/audio HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n")
        writer.write(bytes(1_000_000))
        await asyncio.Event().wait()
    finally:
        writer.transport.abort()


GUESTS = {
    "speaks and vanishes": _speak_and_vanish,
    "reads nothing": _read_nothing,
    "opens 64 streams and says nothing": _say_nothing,
    "reads nothing of the gateway": _ignore_gateway,
    "stops in the middle of an upload": _stop_uploading,
}


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
