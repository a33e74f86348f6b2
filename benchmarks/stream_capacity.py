"""How many live streams this machine carries: `python benchmarks/stream_capacity.py`.

Starts the services without a session limit and sends more and more streams in real time, until the
95th percentile of word lag differs by more than a tenth from that of few streams. All have the same
audio, so that their lags can be compared, and each begins at a random time, so that streams wait
for each other's segments no more than independent ones do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from live_streams import DEMO, carry, percentile, read_streams
from service_processes import ServiceProcesses, run_service_processes

from earvoice.client import connect

COUNTS = (2, 4, 8, 12, 16, 20, 24, 28, 32, 40)
"""The first is what the others are compared with."""
ALLOWED_RATIO = 1.1
UNLIMITED = "1000"


@dataclass(frozen=True)
class Load:
    """Results of a number of streams.

    Attributes:
        cores: cores that the three services used together, while all streams ran.
        client_cores: cores that the senders in this process used, on the same machine.
        merged_share: share of segments merged into another because the machine was late.
    """

    count: int
    cores: float
    client_cores: float
    p50_ms: float
    p95_ms: float
    merged_share: float
    words: int


async def measured(services: ServiceProcesses, path: Path, count: int, seconds: float) -> Load:
    audio_format, stretches = read_streams(path, 1, seconds)
    streams = stretches * count
    async with connect(services.address) as client:
        before, before_own = sum(services.cpu_seconds().values()), time.process_time()
        heard = await carry(client, audio_format, streams)
    return Load(
        count,
        (sum(services.cpu_seconds().values()) - before) / seconds,
        (time.process_time() - before_own) / seconds,
        percentile(heard.lags_ms, 50),
        percentile(heard.lags_ms, 95),
        heard.merged_segments / max(1, heard.segments + heard.merged_segments),
        len(heard.lags_ms),
    )


async def run(path: Path, counts: Sequence[int], seconds: float) -> None:
    cores = len(psutil.Process().cpu_affinity())
    print(f"{cores} cores; {seconds:g} s a stream")
    print("streams  cores  client   lag p50   lag p95   merged   items")
    carried, still_ms = 0, float("nan")
    async with run_service_processes() as services:
        # The first words of a process are late: libraries load, kernels are compiled.
        await measured(services, path, counts[0], min(seconds, 20.0))
        for count in counts:
            load = await measured(services, path, count, seconds)
            if count == counts[0]:
                still_ms = load.p95_ms
            print(
                f"{load.count:7}{load.cores:7.2f}{load.client_cores:8.2f}{load.p50_ms:7.0f} ms"
                f"{load.p95_ms:7.0f} ms{load.merged_share:9.3f}{load.words:8}",
                flush=True,
            )
            if load.p95_ms > ALLOWED_RATIO * still_ms:
                break
            carried = count
    print(f"carried: {carried} streams with p95 within {ALLOWED_RATIO:g} times that of {counts[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--audio", type=Path, default=DEMO, help="a recording (%(default)s)")
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="of streams, rising")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each stream")
    arguments = parser.parse_args()
    for service in ("POLICY", "ENCODER", "DECODER"):
        os.environ.setdefault(f"EARVOICE_{service}_SESSION_LIMIT", UNLIMITED)
    asyncio.run(run(arguments.audio, arguments.counts, arguments.seconds))


if __name__ == "__main__":
    main()
