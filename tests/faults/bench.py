"""The rows of the table: a fault, the streams that it meets, and what became of them."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from tests.faults.cluster import Cluster, ClusterPlan, running_cluster
from tests.faults.comparison import CatchUp, Comparison, Heard, compare, listen
from tests.faults.fault import FAULTS, NEED_ISOLATION, Fault, RollingRestart
from tests.soak.recording import cut, join, read_clips, sample_folders

# Words are out by then, and utterances have begun and ended.
STRIKE_BETWEEN_S = (7.0, 11.0)
CATCH_UPS: tuple[CatchUp, ...] = ("every-segment", "merge")

References = Mapping[bytes, Heard]


@dataclass(frozen=True)
class Row:
    """What a fault did.

    Attributes:
        replica_count: of each service.
        comparisons: each beside the undisturbed run, in the same order.
        troubles: what else is wrong, in words for people.
    """

    fault: str
    replica_count: int
    heard: tuple[Heard, ...]
    comparisons: tuple[Comparison, ...]
    troubles: tuple[str, ...]

    @property
    def lost(self) -> int:
        return sum(comparison.lost for comparison in self.comparisons)

    @property
    def doubled(self) -> int:
        return sum(comparison.doubled for comparison in self.comparisons)

    @property
    def longest_gap_s(self) -> float:
        """Longest time in which a client heard nothing."""
        return max(heard.longest_gap_s for heard in self.heard)

    @property
    def replays(self) -> int:
        """How often the policies lost an encoder or decoder and did its work again elsewhere."""
        return sum(heard.summary.replays for heard in self.heard if heard.summary)

    @property
    def reconnects(self) -> int:
        """How often clients went to another policy, or to the same one again."""
        return sum(heard.reconnect_count for heard in self.heard)

    @property
    def recovered(self) -> int:
        return sum(heard.summary is not None for heard in self.heard)

    def cells(self) -> tuple[str, ...]:
        stream_count = len(self.heard)
        numbers = (self.replica_count, stream_count, self.lost, self.doubled)
        gap, recovered = f"{self.longest_gap_s:.1f}", f"{self.recovered} of {stream_count}"
        went_on = (self.replays, self.reconnects)
        return self.fault, *map(str, numbers), gap, recovered, *map(str, went_on)

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, nothing doubled, and nothing else is wrong."""
        harmed = self.lost or self.doubled or self.troubles
        return not harmed and self.recovered == len(self.heard)


async def run_row(
    fault: Fault,
    cluster: Cluster,
    audios: Sequence[bytes],
    references: References,
    draw: random.Random,
) -> Row:
    """Run live streams, let the fault happen among them, and compare."""
    catch_ups = [CATCH_UPS[index % len(CATCH_UPS)] for index in range(len(audios))]
    heard = await _run(fault, cluster, audios, catch_ups, draw.uniform(*STRIKE_BETWEEN_S))
    await fault.mend(cluster)
    comparisons = [
        compare(one, references[audio], catch_up)
        for one, catch_up, audio in zip(heard, catch_ups, audios, strict=True)
    ]
    flaws = [flaw for comparison in comparisons for flaw in comparison.flaws]
    failures = [one.failure for one in heard if one.failure]
    troubles = tuple(dict.fromkeys([*cluster.take_troubles(), *flaws, *failures]))
    count = cluster.plan.replica_count
    return Row(fault.name, count, tuple(heard), tuple(comparisons), troubles)


async def _run(
    fault: Fault,
    cluster: Cluster,
    audios: Sequence[bytes],
    catch_ups: Sequence[CatchUp],
    strike_after_s: float,
) -> list[Heard]:
    async def strike() -> None:
        await asyncio.sleep(strike_after_s)
        await fault.strike(cluster)

    async with asyncio.TaskGroup() as group:
        streams = [
            group.create_task(listen(client_target(cluster, index), audio, mode, paced=True))
            for index, (audio, mode) in enumerate(zip(audios, catch_ups, strict=True))
        ]
        group.create_task(strike())
    return [stream.result() for stream in streams]


def client_target(cluster: Cluster, index: int) -> str:
    """Return the policies' addresses, another one first for every client."""
    addresses = cluster.addresses("policy")
    first = index % len(addresses)
    return ",".join([*addresses[first:], *addresses[:first]])


async def hear_references(audios: Iterable[bytes], folder: Path) -> dict[bytes, Heard]:
    """Translate each recording once, in EVERY_SEGMENT, at full speed, one after the other."""
    references: dict[bytes, Heard] = {}
    async with running_cluster(ClusterPlan(1), folder / "reference") as cluster:
        for audio in audios:
            if audio in references:
                continue
            heard = await listen(client_target(cluster, 0), audio, "every-segment", paced=False)
            if heard.summary is None:
                raise RuntimeError(f"an undisturbed stream failed: {heard.failure}")
            references[audio] = heard
    return references


STREAMS_BY_REPLICAS = {2: 4, 1: 10}
RECORDING_COUNT = 4


@dataclass(frozen=True)
class BenchPlan:
    """What is asked for.

    Attributes:
        replica_counts: of each service, one block of rows each.
        stream_count: instead of the usual one; None for that.
        stream_s: length of every stream, instead of what each fault needs; None for that.
        isolated: whether rules of the network and mounts are our own.
    """

    only: Sequence[str]
    replica_counts: Sequence[int]
    stream_count: int | None
    stream_s: int | None
    seed: int
    isolated: bool

    def rows(self) -> Iterator[tuple[Fault, int]]:
        """Yield each fault with the number of replicas."""
        for count in self.replica_counts:
            for fault in FAULTS:
                possible = self.isolated or not isinstance(fault, NEED_ISOLATION)
                if possible and any(words in fault.name for words in self.only):
                    yield fault, count


@dataclass(frozen=True)
class Task:
    fault: Fault
    replica_count: int
    audios: Sequence[bytes]

    @property
    def cluster(self) -> tuple[str, int]:
        return self.fault.cluster, self.replica_count


async def run_bench(plan: BenchPlan, folder: Path) -> AsyncIterator[list[Row]]:
    """Run all rows; neighbours that need the same kind of cluster meet the same one."""
    source = join(read_clips(sample_folders()), 2 * RollingRestart.stream_s).audio
    tasks = [
        Task(fault, count, _audios(source, plan, fault, count)) for fault, count in plan.rows()
    ]
    say(f"{len(tasks)} rows; logs in {folder}; first, undisturbed runs")
    references = await hear_references((a for task in tasks for a in task.audios), folder)
    draw = random.Random(plan.seed)
    for (cluster, count), group in groupby(tasks, key=lambda task: task.cluster):
        group_folder = folder / f"{cluster.replace(' ', '-')}-{count}"
        group_folder.mkdir()
        yield await _run_group([*group], references, group_folder, draw)


async def _run_group(
    tasks: Sequence[Task], references: References, folder: Path, draw: random.Random
) -> list[Row]:
    rows = []
    async with tasks[0].fault.plan(tasks[0].replica_count, folder) as plan:
        async with running_cluster(plan, folder) as cluster:
            for task in tasks:
                row = await run_row(task.fault, cluster, task.audios, references, draw)
                say("\n    ".join([" | ".join(row.cells()), *row.troubles]))
                rows.append(row)
        for trouble in (late := cluster.take_troubles()):
            say(f"    in the end: {trouble}")
    return [*rows[:-1], replace(rows[-1], troubles=(*rows[-1].troubles, *late))]


def say(line: str) -> None:
    print(line, flush=True)


def _audios(source: bytes, plan: BenchPlan, fault: Fault, replica_count: int) -> list[bytes]:
    recordings = cut(source, RECORDING_COUNT, plan.stream_s or fault.stream_s)
    count = plan.stream_count or STREAMS_BY_REPLICAS[replica_count]
    return [recordings[index % RECORDING_COUNT] for index in range(count)]


MARK = "EARVOICE_FAULTS_ISOLATED"
UNSHARE = ("unshare", "--net", "--mount")
TOOLS = ("unshare", "ip", "iptables", "mount")


def isolate(module: str) -> bool:
    """Run the module again in namespaces of its own, or return whether we are in them.

    Returns:
        False where that cannot be had: not root, or a tool or the kernel's leave is missing.
    """
    if os.environ.get(MARK):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)  # noqa: S607 - the system's
        return True
    if os.geteuid() != 0 or not all(map(shutil.which, TOOLS)):
        return False
    trial = subprocess.run([*UNSHARE, "iptables", "-L", "-n"], check=False, capture_output=True)
    if trial.returncode != 0:
        return False
    command = [*UNSHARE, sys.executable, "-m", module, *sys.argv[1:]]
    os.execvpe(command[0], command, {**os.environ, MARK: "1"})  # noqa: S606 - no shell is wanted
    raise AssertionError  # it has taken our place, or raised
