"""What refused clients cost those that are served: `python benchmarks/refused_clients.py`.

Starts the services, fills them with live streams up to their capacity, and measures the word lag:
alone, and while as many more clients ask, are refused, wait as long as they are told, and ask
again. The two kinds of round alternate, so that a machine that slows down slows both.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path

from live_streams import DEMO, Heard, begin_delays_s, chunks, listen, percentile, read_streams
from service_processes import run_service_processes

from earvoice.client import (
    ServerBusyError,
    Started,
    TranslationClient,
    TranslationOptions,
    connect,
)

MOST_SESSIONS = 1000
RETRY_S = 1.0
HEAD_START_S = 1.0
BACKENDS = ("ENCODER", "DECODER")


@dataclass
class Side:
    """Results of the streams in all rounds of one kind, and how often a client was refused."""

    heard: Heard = field(default_factory=Heard)
    refused: int = 0
    let_in: int = 0


@dataclass(frozen=True)
class Plan:
    """The admitted streams: how they are translated, and each one's audio."""

    options: TranslationOptions
    streams: Sequence[bytes]


async def find_capacity(client: TranslationClient, options: TranslationOptions) -> int:
    """Open sessions that send nothing until one is refused; return how many there were."""
    async with AsyncExitStack() as stack:
        for count in range(MOST_SESSIONS):
            stream = client.translate(silence(), options)
            events = await stack.enter_async_context(aclosing(stream))
            try:
                await anext(events)
            except ServerBusyError:
                return count
    raise RuntimeError(f"{MOST_SESSIONS} sessions were let in")


async def silence() -> AsyncIterator[bytes]:
    """Audio that never comes and never ends."""
    await asyncio.Event().wait()
    yield b""


async def ask_again(
    client: TranslationClient, audio: bytes, options: TranslationOptions, side: Side
) -> None:
    """Ask for a session again and again, each time after the wait that the server asks for."""
    while True:
        try:
            async with aclosing(client.translate(chunks(audio, options.audio), options)) as events:
                async for event in events:
                    side.let_in += isinstance(event, Started)
        except ServerBusyError as error:
            side.refused += 1
            await asyncio.sleep(error.retry_after_s or RETRY_S)


async def fill(client: TranslationClient, plan: Plan, side: Side, refused_count: int) -> None:
    """Run one round: all admitted streams to their end, and refused clients beside them."""
    delays_s = begin_delays_s(len(plan.streams))
    async with asyncio.TaskGroup() as group:
        streams = [
            group.create_task(listen(client, audio, plan.options, delay_s, side.heard))
            for audio, delay_s in zip(plan.streams, delays_s, strict=True)
        ]
        # All streams are admitted before other clients ask.
        await asyncio.sleep(max(delays_s) + HEAD_START_S)
        refused = [
            group.create_task(ask_again(client, plan.streams[0], plan.options, side))
            for _ in range(refused_count)
        ]
        # Clients admitted after that would add load that the other rounds do not have.
        await asyncio.wait(streams, return_when=asyncio.FIRST_COMPLETED)
        for one in refused:
            one.cancel()


async def measure(address: str, arguments: argparse.Namespace) -> None:
    alone, beside = Side(), Side()
    async with connect(address) as client:
        target = (await client.list_models()).models[0].target_languages[0]
        audio_format, _ = read_streams(arguments.audio, 1, 1.0)
        options = TranslationOptions((target,), audio_format, catch_up="merge", paced=True)
        capacity = await find_capacity(client, options)
        print(f"capacity: {capacity} sessions", flush=True)
        _, streams = read_streams(arguments.audio, capacity, arguments.seconds)
        plan = Plan(options, streams)
        for _ in range(arguments.rounds):
            await fill(client, plan, alone, 0)
            await fill(client, plan, beside, capacity)
    print_table({"alone": alone, "beside them": beside})


def print_table(sides: dict[str, Side]) -> None:
    print(
        f"{'':12}{'words':>8}{'p50, ms':>9}{'p95, ms':>9}{'merged':>8}{'refused':>9}{'let in':>8}"
    )
    for name, side in sides.items():
        lags_ms = side.heard.lags_ms
        p50_ms, p95_ms = (percentile(lags_ms, percent) for percent in (50, 95))
        print(
            f"{name:12}{len(lags_ms):8}{p50_ms:9.0f}{p95_ms:9.0f}{side.heard.merged_segments:8}"
            f"{side.refused:9}{side.let_in:8}"
        )
    before_ms, after_ms = (percentile(side.heard.lags_ms, 95) for side in sides.values())
    print(f"p95 moves by {after_ms / before_ms - 1:+.1%}; aim: less than 10 %")


async def run(arguments: argparse.Namespace) -> None:
    if arguments.capacity:
        for service in BACKENDS:
            os.environ[f"EARVOICE_{service}_SESSION_LIMIT"] = str(arguments.capacity)
    async with run_service_processes() as services:
        await measure(services.address, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--audio", type=Path, default=DEMO, help="a recording (%(default)s)")
    parser.add_argument("--capacity", type=int, help="sessions, instead of the services' own limit")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each stream")
    parser.add_argument("--rounds", type=int, default=2, help="of each kind")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
