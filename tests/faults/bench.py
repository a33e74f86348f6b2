"""The rows of the table, one after the other."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from tests.faults.catalogue import FAULTS, NEED_ISOLATION
from tests.faults.cluster import running_cluster
from tests.faults.fault import Fault, RollingRestart
from tests.faults.reference import hear_references
from tests.faults.row import References, Row, run_row
from tests.soak.recording import cut, join, read_clips, sample_folders

STREAMS_BY_REPLICAS = {2: 4, 1: 10}
RECORDING_COUNT = 4


@dataclass(frozen=True)
class BenchPlan:
    """What is asked for.

    Attributes:
        only: faults whose names hold one of these.
        replica_counts: of each service, one block of rows each.
        stream_count: instead of the usual one; None for that.
        stream_s: length of every stream, instead of what each fault needs; None for that.
        seed: says when faults happen.
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
    """One row to be made: a fault, the replicas of each service, and a recording a stream."""

    fault: Fault
    replica_count: int
    audios: Sequence[bytes]

    @property
    def cluster(self) -> tuple[str, int]:
        """Kind and size of the cluster that it needs."""
        return self.fault.cluster, self.replica_count


async def run_bench(plan: BenchPlan, folder: Path) -> AsyncIterator[list[Row]]:
    """Run all rows; neighbours that need the same kind of cluster meet the same one.

    Yields:
        The rows of one cluster.
    """
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
    """Tell the person who waits."""
    print(line, flush=True)


def _audios(source: bytes, plan: BenchPlan, fault: Fault, replica_count: int) -> list[bytes]:
    recordings = cut(source, RECORDING_COUNT, plan.stream_s or fault.stream_s)
    count = plan.stream_count or STREAMS_BY_REPLICAS[replica_count]
    return [recordings[index % RECORDING_COUNT] for index in range(count)]
