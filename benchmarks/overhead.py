"""What the services cost beyond their forward passes: `python benchmarks/overhead.py`.

Streams a recording through the three services at full speed, every segment decided, and computes
the same forward passes (features, voice activity, encoder, decoder) in this process alone, in
alternate rounds; prints both in processor seconds (user and system) and the ratio of their medians.
Then prints each service's import time and its memory before the first stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import grpc
from bare_passes import record
from live_streams import DEMO, read_streams
from service_processes import SERVICES, ServiceProcesses, run_service_processes

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import speech_translation_service_pb2_grpc as pb_grpc
from earvoice.api.v1 import types_pb2
from earvoice.decoder.loading import load_decoder
from earvoice.decoder.settings import DecoderSettings
from earvoice.encoder.model import load_model
from earvoice.encoder.settings import EncoderSettings
from earvoice.runtime.settings import load_settings

MESSAGE_MS = 500
IMPORTS = {
    "policy": "import earvoice.policy.server",
    "encoder": "import earvoice.encoder.__main__, earvoice.encoder.model, earvoice.encoder.service",
    "decoder": "import earvoice.decoder.__main__, earvoice.decoder.loading, "
    "earvoice.decoder.engine, earvoice.decoder.service",
}
IMPORT_ROUNDS = 5
POLL_S = 0.05
MEBIBYTE = 2**20


async def stream(address: str, config: pb.StreamingConfig, audio: bytes) -> list[str]:
    """Translate at full speed and return the texts."""
    size = 2 * config.sample_rate_hertz * MESSAGE_MS // 1000
    messages = [pb.StreamingTranslateRequest(config=config)]
    messages += [
        pb.StreamingTranslateRequest(audio=audio[begin : begin + size])
        for begin in range(0, len(audio), size)
    ]
    async with grpc.aio.insecure_channel(address) as channel:
        stub = pb_grpc.SpeechTranslationServiceStub(channel)
        return [
            item.text
            async for response in stub.StreamingTranslate(messages)
            for item in response.committed.items
        ]


async def served_model(address: str) -> types_pb2.ModelDescription:
    """What the services say about their model."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = pb_grpc.SpeechTranslationServiceStub(channel)
        return (await stub.ListModels(pb.ListModelsRequest())).models[0]


async def measure_services(
    services: ServiceProcesses, config: pb.StreamingConfig, audio: bytes
) -> dict[str, float]:
    before = services.cpu_seconds()
    await stream(services.address, config, audio)
    after = services.cpu_seconds()
    return {service: after[service] - before[service] for service in SERVICES}


async def compare(services: ServiceProcesses, arguments: argparse.Namespace) -> None:
    audio_format, (audio,) = read_streams(arguments.audio, 1, arguments.seconds)
    rate_hertz = audio_format.sample_rate_hz
    model = await served_model(services.address)
    config = pb.StreamingConfig(
        audio_encoding=types_pb2.AUDIO_ENCODING_LINEAR16,
        sample_rate_hertz=rate_hertz,
        target_language_codes=model.target_language_codes[:1],
        catch_up=pb.CATCH_UP_EVERY_SEGMENT,
    )
    encoder = load_model(load_settings(EncoderSettings))
    decoder = load_decoder(load_settings(DecoderSettings))
    tape, texts = await record(encoder, decoder, model, config, audio)
    if await stream(services.address, config, audio) != texts:
        sys.exit("the services and the bare process say different words: nothing to compare")
    print(f"{len(audio) / 2 / rate_hertz:.1f} s of audio, {len(texts)} items, the same from both")
    print(
        f"tokens predicted: services {await predicted_tokens(services)}, bare {tape.step_count} "
        "(a halt reaches the decoder while it computes the next)"
    )
    tape.replay()
    running, bare = [], []
    for _ in range(arguments.rounds):
        running.append(await measure_services(services, config, audio))
        bare.append(tape.replay())
    print_ratio(running, bare)


async def predicted_tokens(services: ServiceProcesses) -> int:
    """Tokens that the decoder says it predicted in its first session."""
    while True:
        for line in services.log("decoder").splitlines():
            if '"session ended"' in line:
                return int(json.loads(line)["steps"])
        await asyncio.sleep(POLL_S)


def print_ratio(running: Sequence[dict[str, float]], bare: Sequence[dict[str, float]]) -> None:
    """Print the processor seconds of services and bare passes: medians and their ratio."""
    for service in SERVICES:
        with_it = statistics.median(spent[service] for spent in running)
        without = statistics.median(spent.get(service, 0.0) for spent in bare)
        print(f"  {service:8} {with_it:8.3f} s, its passes alone {without:8.3f} s")
    running_s = [sum(spent.values()) for spent in running]
    bare_s = [sum(spent.values()) for spent in bare]
    print(f"services   {statistics.median(running_s):8.3f} s  {span(running_s)}")
    print(f"bare       {statistics.median(bare_s):8.3f} s  {span(bare_s)}")
    ratio = statistics.median(running_s) / statistics.median(bare_s)
    print(f"ratio      {ratio:8.3f}    of medians of {len(running)} rounds; aim: 1.10")


def span(values: Sequence[float]) -> str:
    return f"({min(values):.3f} to {max(values):.3f})"


def print_memory(services: ServiceProcesses) -> None:
    for service, process in services.processes.items():
        memory = process.memory_full_info()
        print(
            f"{service:8} resting memory {memory.rss / MEBIBYTE:6.0f} MiB resident, "
            f"{memory.uss / MEBIBYTE:6.0f} MiB its own"
        )


def print_import_times() -> None:
    """Print each import's best wall time of a few, and that of the interpreter alone."""
    bare_s = import_seconds("pass")
    print(f"python   alone {bare_s:.2f} s")
    for service, statement in IMPORTS.items():
        print(f"{service:8} import {import_seconds(statement) - bare_s:.2f} s")


def import_seconds(statement: str) -> float:
    """Seconds that a fresh interpreter takes to run one statement."""
    taken = []
    for _ in range(IMPORT_ROUNDS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-P", "-c", statement], check=True)
        taken.append(time.perf_counter() - began)
    return min(taken)


async def run(arguments: argparse.Namespace) -> None:
    async with run_service_processes() as services:
        print_memory(services)
        await compare(services, arguments)
    print_import_times()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--audio", type=Path, default=DEMO, help="a recording (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="it is repeated to this length")
    parser.add_argument("--rounds", type=int, default=7)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
