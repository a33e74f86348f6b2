"""What tracing everything costs: `python benchmarks/tracing.py`.

Starts the services once, each with a trace file and a trace ratio of 0, and sends ten streams at
once at full speed, every segment decided: alternately with a sampled trace from the client, which
traces the whole session, and without one. Prints the processor seconds of both: medians, and
minima, which other programs on the machine disturb least.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import statistics
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory

from live_streams import DEMO, read_streams
from service_processes import SERVICES, ServiceProcesses, run_service_processes

from earvoice.client import TranslationClient, TranslationOptions, connect

CHUNK_BYTES = 6400
EXPORT_S = 5.5
"""Spans are exported within five seconds; the export counts for the round that made them."""


async def listen(client: TranslationClient, audio: bytes, options: TranslationOptions) -> None:
    pieces = (audio[at : at + CHUNK_BYTES] for at in range(0, len(audio), CHUNK_BYTES))

    async def chunks():  # noqa: ANN202 - an iterator of what stands above
        for piece in pieces:
            yield piece

    async with aclosing(client.translate(chunks(), options)) as events:
        async for _ in events:
            pass


async def cpu_seconds_of_round(
    services: ServiceProcesses, arguments: argparse.Namespace, *, traced: bool
) -> dict[str, float]:
    """Run the streams once and return what each service spent on them."""
    audio_format, streams = read_streams(arguments.audio, arguments.streams, arguments.seconds)
    async with connect(services.address) as client:
        target = (await client.list_models()).models[0].target_languages[0]
        before = services.cpu_seconds()
        async with asyncio.TaskGroup() as group:
            for audio in streams:
                trace = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01" if traced else ""
                options = TranslationOptions(
                    (target,), audio_format, catch_up="every-segment", traceparent=trace
                )
                group.create_task(listen(client, audio, options))
        await asyncio.sleep(EXPORT_S)
        after = services.cpu_seconds()
    return {service: after[service] - before[service] for service in SERVICES}


async def run(arguments: argparse.Namespace) -> None:
    """Alternate rounds, so that a machine that slows down slows both kinds."""
    with TemporaryDirectory(prefix="earvoice-traces-") as folder:
        for service in SERVICES:
            prefix = f"EARVOICE_{service.upper()}_"
            os.environ[f"{prefix}TRACE_FILE"] = str(Path(folder) / f"{service}.jsonl")
            os.environ[f"{prefix}TRACE_RATIO"] = "0"
        spent: dict[bool, list[float]] = {False: [], True: []}
        async with run_service_processes() as services:
            await cpu_seconds_of_round(services, arguments, traced=True)
            for turn in range(2 * arguments.rounds):
                # Off, on, on, off, …: neither kind always comes second.
                traced = turn % 4 in (1, 2)
                seconds = await cpu_seconds_of_round(services, arguments, traced=traced)
                spent[traced].append(sum(seconds.values()))
                parts = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())
                print(f"{'traced  ' if traced else 'untraced'} {parts} s", flush=True)
        written = [Path(folder) / f"{service}.jsonl" for service in SERVICES]
        size = sum(map(os.path.getsize, written))
    print(f"{arguments.streams} streams of {arguments.seconds:g} s, {arguments.rounds} rounds each")
    for name, choose in (("medians", statistics.median), ("minima", min)):
        without, with_traces = choose(spent[False]), choose(spent[True])
        share = with_traces / without - 1
        print(f"{name}: untraced {without:.2f} s, traced {with_traces:.2f} s: {share:+.2%}")
    print(f"aim: under 2 %; spans written: {size / 1e6:.1f} MB")


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--audio", type=Path, default=DEMO, help="a recording (%(default)s)")
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each stream")
    parser.add_argument("--rounds", type=int, default=20, help="of each kind")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
