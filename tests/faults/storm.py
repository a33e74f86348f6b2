"""`python -m tests.faults.storm`: many faults, one upon the other, drawn from a seed.

Live streams run all the while over two replicas of each service and a gateway, with a proxy in
front of each. At the end every stream is held against the same recording undisturbed, and processes
against what they held open before. A schedule that fails is made shorter until nothing can be left
out of it; the seed and the shortest one are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import tempfile
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from tests.faults.bench import (
    CATCH_UPS,
    RECORDING_COUNT,
    References,
    client_target,
    hear_references,
    isolate,
    say,
)
from tests.faults.cluster import FAKETIME, GATEWAY, SERVICES, Cluster, ClusterPlan, running_cluster
from tests.faults.comparison import Heard, compare, listen, listen_by_gateway
from tests.faults.fault import (
    GUESTS,
    NEED_ISOLATION,
    BlackHole,
    ClockStep,
    Delay,
    Descriptors,
    Drain,
    Fault,
    Freeze,
    FullDisk,
    Guest,
    Kill,
    LogReader,
    Loss,
    Passing,
    Reset,
)
from tests.soak.recording import cut, join, read_clips, sample_folders

REPLICA_COUNT = 2
STREAM_COUNT = 8
# Sessions are open by then, and the last fault's consequences are over before the streams are.
CALM_S = 6.0
GAP_S = (1.0, 6.0)
HARM_S = (2.0, 9.0)
# Spans and logs of a storm are far less: it is full only when a fault fills it.
STORM_DISK = FullDisk("48m")
# One of them at a time, since there are two replicas.
TAKE_A_REPLICA = (Kill, Freeze, Drain, BlackHole)
# Pools and connections between services come and go; a leak of a session each would be far more.
SPARE_DESCRIPTORS = 16
SPARE_THREADS = 8
# Caches of what was computed for one length or another; what is merely free is returned.
MOST_GROWTH_OF_MEMORY = 1.25
SPARE_MIB = 64
# Heard before and after, everywhere: ten seconds.
CALM_BYTES = 320_000
# For sessions whose clients have gone without a word, and engines that come to rest.
IDLE_PATIENCE_S = 180


@dataclass(frozen=True)
class Planned:
    """A fault, and how long after the one before it begins."""

    after_s: float
    fault: Fault

    def __str__(self) -> str:
        return f"{self.after_s:.1f} s later: {self.fault.name}"


def draw_schedule(seed: int, duration_s: float) -> list[Planned]:
    """The same for the same seed, whatever the machine can do."""
    draw = random.Random(seed)
    planned: list[Planned] = []
    left_s = duration_s - 2 * CALM_S
    while left_s > 0:
        service, number = draw.choice((*SERVICES, GATEWAY)), draw.randrange(REPLICA_COUNT)
        number = 0 if service == GATEWAY else number
        harm_s = draw.uniform(*HARM_S)
        fault = draw.choice(
            [
                Kill(service, number),
                Freeze(service, number, harm_s),
                Drain(service, number),
                Reset(service),
                BlackHole(service, number, harm_s),
                BlackHole(service, None, harm_s),
                Passing(Delay((service,), draw.choice((0.02, 0.1, 0.3))), harm_s),
                Passing(Loss(draw.choice((0.02, 0.1))), harm_s),
                Passing(STORM_DISK, harm_s),
                LogReader(service, 0, draw.choice((harm_s, None))),
                Descriptors(service, number, harm_s),
                ClockStep(service, number, draw.choice((-3600, -60, 0, 60, 300))),
                Guest(draw.choice([*GUESTS]), number, harm_s),
            ]
        )
        planned.append(Planned(draw.uniform(*GAP_S), fault))
        left_s -= planned[-1].after_s + harm_s * isinstance(fault, TAKE_A_REPLICA)
    return planned


def impossible(fault: Fault, *, isolated: bool) -> bool:
    """Whether this machine cannot do that."""
    inner = fault.fault if isinstance(fault, Passing) else fault
    if isinstance(inner, ClockStep):
        return FAKETIME is None
    return isinstance(inner, NEED_ISOLATION) and not isolated


class Held:
    """What the processes of a cluster hold, the most of each service, and the files they left."""

    def __init__(self, cluster: Cluster) -> None:
        self.counts: dict[str, dict[str, int]] = {"descriptors": {}, "threads": {}, "MiB": {}}
        for service, replicas in cluster.replicas.items():
            processes = [psutil.Process(replica.pid) for replica in replicas]
            self.counts["descriptors"][service] = max(p.num_fds() for p in processes)
            self.counts["threads"][service] = max(p.num_threads() for p in processes)
            self.counts["MiB"][service] = max(p.memory_info().rss >> 20 for p in processes)
        self.files = {path.name for path in cluster.temporary.iterdir()}

    def more_than(self, before: Held) -> list[str]:
        """What has grown, in words for people."""
        most = {
            "descriptors": lambda count: count + SPARE_DESCRIPTORS,
            "threads": lambda count: count + SPARE_THREADS,
            "MiB": lambda count: count * MOST_GROWTH_OF_MEMORY + SPARE_MIB,
        }
        left = self.files - before.files
        return [
            f"{service}: {count} {kind} at the end, {before.counts[kind][service]} before"
            for kind, counts in self.counts.items()
            for service, count in counts.items()
            if count > most[kind](before.counts[kind][service])
        ] + ([f"left in the temporary folder: {', '.join(sorted(left))}"] if left else [])


async def listen_everywhere(cluster: Cluster, audio: bytes) -> list[Heard]:
    """Use everything once: what is opened for good is open then."""
    targets = [client_target(cluster, first) for first in range(REPLICA_COUNT)]
    listening = [listen(target, audio, "every-segment", paced=False) for target in targets]
    gateway = cluster.addresses(GATEWAY)[0]
    listening.append(listen_by_gateway(gateway, audio, "every-segment", paced=False))
    return await asyncio.gather(*listening)


async def what_stays(look: Callable[[], Awaitable[list[str]]]) -> list[str]:
    """What is still there when nobody asks for anything any more, after some patience."""
    found: list[str] = []
    for _ in range(IDLE_PATIENCE_S):
        found = await look()
        if not found:
            break
        await asyncio.sleep(1)
    return found


async def open_sessions(cluster: Cluster) -> list[str]:
    counts = {
        r.name: await asyncio.to_thread(session_count, r.metrics_address) for r in cluster.every
    }
    return [f"{name}: {count:.0f} sessions still run" for name, count in counts.items() if count]


def session_count(metrics_address: str) -> float:
    """Sessions that run, and the gateway's connections."""
    with urllib.request.urlopen(metrics_address, timeout=30) as answer:  # noqa: S310 - ours
        lines = answer.read().decode().splitlines()
    names = ("earvoice_sessions_active", "earvoice_gateway_sockets")
    counts = [float(line.split()[-1]) for line in lines if line.startswith(names)]
    assert counts
    return sum(counts)


async def storm(
    schedule: Sequence[Planned],
    audios: Sequence[bytes],
    references: References,
    folder: Path,
    *,
    isolated: bool,
) -> list[str]:
    """Run the streams through a schedule; return what was wrong."""
    async with AsyncExitStack() as stack:
        plan = ClusterPlan(REPLICA_COUNT)
        if isolated:
            plan = await stack.enter_async_context(STORM_DISK.plan(REPLICA_COUNT, folder))
        plan = replace(plan, proxied=True, for_storms=True)
        async with running_cluster(plan, folder) as cluster:
            wrong = await _storm(cluster, schedule, audios, references)
        # Logs may be on the disk that goes with the stack.
        return wrong + cluster.take_troubles()


async def _storm(
    cluster: Cluster, schedule: Sequence[Planned], audios: Sequence[bytes], references: References
) -> list[str]:
    calm = await listen_everywhere(cluster, audios[0][:CALM_BYTES])
    before = Held(cluster)

    async def rage() -> None:
        await asyncio.sleep(CALM_S)
        async with asyncio.TaskGroup() as passing:
            for planned in schedule:
                await asyncio.sleep(planned.after_s)
                say(f"    {planned}")
                striking = passing.create_task(planned.fault.strike(cluster))
                if isinstance(planned.fault, TAKE_A_REPLICA):
                    await striking

    modes = [CATCH_UPS[index % len(CATCH_UPS)] for index in range(len(audios))]
    by_gateway = [index >= len(audios) // 2 for index in range(len(audios))]
    async with asyncio.TaskGroup() as group:
        group.create_task(rage())
        streams = [
            group.create_task(
                listen_by_gateway(cluster.addresses(GATEWAY)[0], audio, mode)
                if by_gateway[i]
                else listen(client_target(cluster, i), audio, mode, paced=True)
            )
            for i, (audio, mode) in enumerate(zip(audios, modes, strict=True))
        ]
    heard = [stream.result() for stream in streams]
    for i, (one, audio) in enumerate(zip(heard, audios, strict=True)):
        both = {"said": one.words, "undisturbed": references[audio].words}
        texts = {name: [asdict(word) for word in words] for name, words in both.items()}
        (cluster.folder / f"stream-{i}.json").write_text(json.dumps(texts, indent=1))
    wrong = []
    for i, (one, mode, audio) in enumerate(zip(heard, modes, audios, strict=True)):
        found = compare(one, references[audio], mode)
        stream = f"stream {i} ({mode}{', by the gateway' * by_gateway[i]})"
        if one.summary is None:
            wrong.append(f"{stream} ended with {one.failure}")
        if found.lost or found.doubled:
            wrong.append(f"{stream}: {found.lost} lost, {found.doubled} doubled")
        wrong += [f"{stream}: {flaw}" for flaw in found.flaws]
    after = await listen_everywhere(cluster, audios[0][:CALM_BYTES])
    if [one.words_said for one in after] != [one.words_said for one in calm]:
        wrong.append("after the storm the same recording says something else than before")
    wrong += await what_stays(lambda: open_sessions(cluster))

    async def grown() -> list[str]:
        return Held(cluster).more_than(before)

    wrong += await what_stays(grown) + cluster.take_troubles()
    said = sum(len(one.words) for one in heard)
    replays = sum(one.summary.replays for one in heard if one.summary)
    reconnects = sum(one.reconnect_count for one in heard)
    say(f"    {len(schedule)} faults, {said} words, {replays} replays, {reconnects} reconnects")
    return wrong


async def shortest(
    schedule: Sequence[Planned], flaws: Callable[[Sequence[Planned]], Awaitable[object]]
) -> list[Planned]:
    """Leave faults out as long as it still fails: half of them at once, at last one by one."""
    kept = list(schedule)
    size = len(kept) // 2
    while size:
        place = 0
        while place < len(kept):
            fewer = kept[:place] + kept[place + size :]
            if fewer and await flaws(fewer):
                kept = fewer
            else:
                place += size
        size = min(size // 2, len(kept) // 2)
    return kept


async def run(
    seeds: Sequence[int], duration_s: int, folder: Path, *, isolated: bool, shortens: bool
) -> int:
    """Run a storm for each seed, on the same recordings; return how many failed."""
    source = join(read_clips(sample_folders()), 2 * duration_s).audio
    recordings = cut(source, RECORDING_COUNT, duration_s)
    audios = [recordings[index % RECORDING_COUNT] for index in range(STREAM_COUNT)]
    say(f"storms of {duration_s} s; first, undisturbed runs; logs in {folder}")
    references = await hear_references(audios, folder)
    numbers = itertools.count()

    async def flaws(some: Sequence[Planned]) -> list[str]:
        attempt = folder / f"attempt-{next(numbers)}"
        say(f"{attempt.name}: {len(some)} faults")
        return await storm(some, audios, references, attempt, isolated=isolated)

    failed = 0
    for seed in seeds:
        drawn = draw_schedule(seed, duration_s)
        schedule = [p for p in drawn if not impossible(p.fault, isolated=isolated)]
        left_out = sorted({p.fault.name for p in drawn} - {p.fault.name for p in schedule})
        say(f"seed {seed}:")
        if left_out:
            say(f"LEFT OUT, for want of root, iptables or libfaketime: {'; '.join(left_out)}")
        wrong = await flaws(schedule)
        if not wrong:
            say(f"seed {seed}: nothing lost, nothing doubled, nothing kept open")
            continue
        failed += 1
        say("\n".join([f"seed {seed} fails:", *wrong]))
        if shortens:
            say("looking for the shortest schedule that fails")
            kept = await shortest(schedule, flaws)
            say("\n".join([f"the shortest that fails, of seed {seed}:", *map(str, kept)]))
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description="Many faults, drawn from a seed.")
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="one storm for each (1)")
    parser.add_argument("--duration", type=int, default=600, help="seconds (%(default)s)")
    parser.add_argument(
        "--as-it-is", action="store_true", help="look for no shorter schedule that fails, too"
    )
    parser.add_argument("--logs", type=Path, help="keep the services' logs in this empty folder")
    arguments = parser.parse_args()
    isolated = isolate("tests.faults.storm")
    with tempfile.TemporaryDirectory(prefix="earvoice-storm-") as temporary:
        folder = arguments.logs or Path(temporary)
        storming = run(
            arguments.seed,
            arguments.duration,
            folder,
            isolated=isolated,
            shortens=not arguments.as_it_is,
        )
        return 1 if asyncio.run(storming) else 0


if __name__ == "__main__":
    sys.exit(main())
