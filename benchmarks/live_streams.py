"""What live streams cost and how late their words are: `python benchmarks/live_streams.py`.

Starts the services, sends some streams in real time with this project's client, each from another
place in the recording, and prints the services' share of a core per stream, the word lag (release
minus the end of the audio that the word is about) and how many segments were merged into others.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile
from service_processes import SERVICES, ServiceProcesses, run_service_processes

from earvoice.client import (
    AudioFormat,
    Committed,
    Summary,
    TranslationClient,
    TranslationOptions,
    connect,
)
from earvoice.client.audio import REALTIME_CHUNK_MS, pace

DEMO = Path(__file__).parents[1] / "demo" / "librispeech_1995-1837-0001.wav"
SILENCE_S = 1.0
BEGIN_SPREAD_S = 8.0
"""Streams that begin together would also end all their segments together."""


@dataclass
class Heard:
    lags_ms: list[float] = field(default_factory=list)
    received_lags_ms: list[float] = field(default_factory=list)
    segments: int = 0
    merged_segments: int = 0


def read_streams(path: Path, count: int, seconds: float) -> tuple[AudioFormat, list[bytes]]:
    """``count`` stretches of a repeated recording, each from another place, LINEAR16 mono."""
    data, rate_hertz = soundfile.read(path, dtype="int16", always_2d=True)
    once = np.concatenate([data[:, 0], np.zeros(int(SILENCE_S * rate_hertz), np.int16)])
    length = int(seconds * rate_hertz)
    repeated = np.tile(once, length // len(once) + 2)
    starts = [len(once) * index // count for index in range(count)]
    streams = [repeated[start : start + length].tobytes() for start in starts]
    return AudioFormat("linear16", rate_hertz, 1), streams


async def listen(
    client: TranslationClient, audio: bytes, options: TranslationOptions, delay_s: float, to: Heard
) -> None:
    await asyncio.sleep(delay_s)
    async with aclosing(client.translate(chunks(audio, options.audio), options)) as events:
        async for event in events:
            match event:
                case Committed():
                    to.lags_ms += [w.elapsed_ms - w.source_end_ms for w in event.words]
                    to.received_lags_ms += [w.received_ms - w.source_end_ms for w in event.words]
                case Summary():
                    to.segments += event.segment_count
                    to.merged_segments += event.merged_segments


async def carry(
    client: TranslationClient, audio_format: AudioFormat, streams: Sequence[bytes]
) -> Heard:
    """Send all streams in real time, side by side; return their results."""
    target = (await client.list_models()).models[0].target_languages[0]
    options = TranslationOptions((target,), audio_format, catch_up="merge", paced=True)
    heard = Heard()
    async with asyncio.TaskGroup() as group:
        for audio, delay_s in zip(streams, begin_delays_s(len(streams)), strict=True):
            group.create_task(listen(client, audio, options, delay_s, heard))
    return heard


def begin_delays_s(count: int) -> list[float]:
    """When each stream begins: independent speakers do so at any time."""
    generator = random.Random(1)  # noqa: S311 - no secret
    return [generator.uniform(0.0, BEGIN_SPREAD_S) for _ in range(count)]


def chunks(audio: bytes, audio_format: AudioFormat) -> AsyncIterator[bytes]:
    """The audio, in real time."""
    size = 2 * audio_format.sample_rate_hz * REALTIME_CHUNK_MS // 1000
    return pace((audio[at : at + size] for at in range(0, len(audio), size)), audio_format)


async def measure(services: ServiceProcesses, arguments: argparse.Namespace) -> None:
    audio_format, streams = read_streams(arguments.audio, arguments.streams, arguments.seconds)
    async with connect(services.address) as client:
        before = services.cpu_seconds()
        heard = await carry(client, audio_format, streams)
        after = services.cpu_seconds()
    spent = {service: after[service] - before[service] for service in SERVICES}
    print_cost(spent, arguments.seconds, len(streams))
    print_lag(heard)


def print_cost(spent_s: dict[str, float], stream_s: float, stream_count: int) -> None:
    """Print the cores used while all streams run, in total and per stream."""
    print(f"{stream_count} streams of {stream_s:.1f} s")
    for service, seconds in spent_s.items():
        share = seconds / stream_s
        print(f"  {service:8} {share:6.3f} cores, {share / stream_count:7.4f} a stream")
    share = sum(spent_s.values()) / stream_s
    print(f"  {'all':8} {share:6.3f} cores, {share / stream_count:7.4f} a stream; aim: 0.08")


def print_lag(heard: Heard) -> None:
    for name, lags_ms in (
        ("released", heard.lags_ms),
        ("received", heard.received_lags_ms),
    ):
        p50, p95 = percentile(lags_ms, 50), percentile(lags_ms, 95)
        print(f"word lag, {name}: p50 {p50:6.0f} ms, p95 {p95:6.0f} ms of {len(lags_ms)} items")
    print(f"segments: {heard.segments}, merged away: {heard.merged_segments}")


def percentile(values: Sequence[float], percent: int) -> float:
    """A percentile, 1 to 99; not a number without two values."""
    if len(values) < 2:
        return float("nan")
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


async def run(arguments: argparse.Namespace) -> None:
    async with run_service_processes() as services:
        await measure(services, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--audio", type=Path, default=DEMO, help="a recording (%(default)s)")
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each stream")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
