"""`python -m tests.faults.storm`: many faults, one after the other, drawn from a seed.

Live streams run all the while over two replicas of each service, with a proxy in front of every
replica. At the end every stream is held against the same recording undisturbed, and processes
against what they held open before. A schedule that fails is made shorter until nothing can be left
out of it; the seed and the shortest one are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from earvoice.client import TranslationOptions, connect
from tests.faults.bench import (
    CATCH_UPS,
    References,
    client_target,
    hear_references,
    say,
)
from tests.faults.cluster import SERVICES, Cluster, ClusterPlan, running_cluster
from tests.faults.comparison import AUDIO_FORMAT, compare, listen
from tests.faults.fault import BlackHole, Delay, Drain, Fault, Freeze, Kill, Reset
from tests.soak.recording import cut, join, read_clips, sample_folders

REPLICA_COUNT = 2
STREAM_COUNT = 8
RECORDING_COUNT = 4
# Sessions are open by then, and the last fault's consequences are over before the streams are.
CALM_S = 6.0
GAP_S = (1.0, 6.0)
HARM_S = (2.0, 9.0)
# Pools and connections between services come and go; a leak of a session each would be far more.
SPARE_DESCRIPTORS = 16
SPARE_THREADS = 8


@dataclass(frozen=True)
class Vanish(Fault):
    """A client that says something and is gone without a word."""

    @property
    def name(self) -> str:
        return "a client vanishes"

    async def strike(self, cluster: Cluster) -> None:
        options = TranslationOptions(("de",), AUDIO_FORMAT, catch_up="merge", paced=False)
        said = asyncio.Event()

        async def audio():
            yield bytes(32_000)
            said.set()
            await asyncio.Event().wait()

        async def speak() -> None:
            async with connect(client_target(cluster, 0)) as client:
                async for _ in client.translate(audio(), options):
                    pass

        speaking = asyncio.create_task(speak())
        await said.wait()
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)


@dataclass(frozen=True)
class Planned:
    """A fault, and how long after the one before has gone."""

    after_s: float
    fault: Fault

    def __str__(self) -> str:
        return f"{self.after_s:.1f} s later: {self.fault.name}"


def draw_schedule(seed: int, duration_s: float) -> list[Planned]:
    """The same for the same seed; one fault at a time, since there are two replicas."""
    draw = random.Random(seed)
    planned: list[Planned] = []
    left_s = duration_s - 2 * CALM_S
    while left_s > 0:
        service, number = draw.choice(SERVICES), draw.randrange(REPLICA_COUNT)
        harm_s = draw.uniform(*HARM_S)
        fault = draw.choice(
            [
                Kill(service, number),
                Freeze(service, number, harm_s),
                Drain(service, number),
                Reset(service),
                BlackHole(service, number, harm_s),
                Passing(Delay((service,), draw.choice((0.02, 0.1, 0.3))), harm_s),
                Vanish(),
            ]
        )
        planned.append(Planned(draw.uniform(*GAP_S), fault))
        left_s -= planned[-1].after_s + harm_s
    return planned


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


class Held:
    """What the processes of a cluster hold open, the most of each service."""

    def __init__(self, cluster: Cluster) -> None:
        self.descriptors, self.threads = {}, {}
        for service, replicas in cluster.replicas.items():
            processes = [psutil.Process(replica.pid) for replica in replicas]
            self.descriptors[service] = max(process.num_fds() for process in processes)
            self.threads[service] = max(process.num_threads() for process in processes)

    def more_than(self, before: Held) -> list[str]:
        """What has grown, in words for people."""
        kinds = (
            ("descriptors", self.descriptors, before.descriptors, SPARE_DESCRIPTORS),
            ("threads", self.threads, before.threads, SPARE_THREADS),
        )
        return [
            f"{service}: {now[service]} {kind} at the end, {then[service]} before"
            for kind, now, then, spare in kinds
            for service in SERVICES
            if now[service] > then[service] + spare
        ]


async def storm(
    schedule: Sequence[Planned], audios: Sequence[bytes], references: References, folder: Path
) -> list[str]:
    """Run the streams through a schedule; return what was wrong."""
    plan = ClusterPlan(REPLICA_COUNT, proxied=True)
    wrong: list[str] = []
    modes = [CATCH_UPS[index % len(CATCH_UPS)] for index in range(len(audios))]
    async with running_cluster(plan, folder) as cluster:
        # Everything has been used once: what is opened for good is open.
        for first in range(REPLICA_COUNT):
            await listen(client_target(cluster, first), audios[0][:320_000], "merge", paced=False)
        before = Held(cluster)

        async def rage() -> None:
            await asyncio.sleep(CALM_S)
            for planned in schedule:
                await asyncio.sleep(planned.after_s)
                say(f"    {planned}")
                await planned.fault.strike(cluster)

        async with asyncio.TaskGroup() as group:
            raging = group.create_task(rage())
            streams = [
                group.create_task(listen(client_target(cluster, i), audio, mode, paced=True))
                for i, (audio, mode) in enumerate(zip(audios, modes, strict=True))
            ]
        raging.result()
        heard = [stream.result() for stream in streams]
        for index, (one, mode, audio) in enumerate(zip(heard, modes, audios, strict=True)):
            found = compare(one, references[audio], mode)
            if one.failure:
                wrong.append(f"stream {index} ({mode}) ended with {one.failure}")
            if found.lost or found.doubled:
                wrong.append(f"stream {index} ({mode}): {found.lost} lost, {found.doubled} doubled")
            wrong += [f"stream {index} ({mode}): {flaw}" for flaw in found.flaws]
        wrong += Held(cluster).more_than(before) + cluster.take_troubles()
        replays = sum(one.summary.replays for one in heard if one.summary)
        reconnects = sum(one.reconnect_count for one in heard)
        say(f"    {len(schedule)} faults, {replays} replays, {reconnects} reconnects")
    return wrong + cluster.take_troubles()


async def shortest(schedule, audios, references, folder: Path) -> list[Planned]:
    """Leave faults out, one at a time, as long as it still fails."""
    kept, place = list(schedule), 0
    for attempt in itertools.count():
        if place == len(kept):
            return kept
        fewer = kept[:place] + kept[place + 1 :]
        if await storm(fewer, audios, references, folder / f"attempt-{attempt}"):
            kept = fewer
        else:
            place += 1
    raise AssertionError  # it counts for ever


async def run(seed: int, duration_s: int, folder: Path) -> int:
    source = join(read_clips(sample_folders()), 2 * duration_s).audio
    recordings = cut(source, RECORDING_COUNT, duration_s)
    audios = [recordings[index % RECORDING_COUNT] for index in range(STREAM_COUNT)]
    schedule = draw_schedule(seed, duration_s)
    say(f"seed {seed}: {len(schedule)} faults in {duration_s} s; logs in {folder}")
    references = await hear_references(audios, folder)
    wrong = await storm(schedule, audios, references, folder / "storm")
    if not wrong:
        say(f"seed {seed}: nothing lost, nothing doubled, nothing kept open")
        return 0
    say("\n".join([f"seed {seed} fails:", *wrong, "looking for the shortest schedule"]))
    kept = await shortest(schedule, audios, references, folder)
    say("\n".join([f"the shortest that fails, of seed {seed}:", *map(str, kept)]))
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Many faults, drawn from a seed.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--duration", type=int, default=600, help="seconds (%(default)s)")
    parser.add_argument("--logs", type=Path, help="keep the services' logs in this empty folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="earvoice-storm-") as temporary:
        folder = arguments.logs or Path(temporary)
        return asyncio.run(run(arguments.seed, arguments.duration, folder))


if __name__ == "__main__":
    sys.exit(main())
