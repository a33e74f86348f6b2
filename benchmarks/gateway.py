"""What the gateway adds: `python benchmarks/gateway.py`.

A policy service that answers each audio message with a word at once, a gateway, and the readers run
as separate processes; the speakers run here, in real time. It measures the time from a message to
its word: directly over gRPC, through the gateway, and through the gateway with readers of the same
stream. The kinds alternate, so that a machine that slows down slows all of them. With `--page` it
measures the lag shown by the page in a real Chromium, against the service's own for the same words.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import psutil
from playwright.async_api import async_playwright
from websockets.asyncio.client import connect as connect_socket

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.api.v1 import speech_translation_service_pb2_grpc as api_grpc
from earvoice.client import Committed, TranslationOptions, connect
from earvoice.policy.audio_buffer import ArrivalClock

CHUNK_MS = 400
CHUNK = bytes(CHUNK_MS * 32)
"""One chunk, and so one word, as often as words come in speech."""
STREAM = "hall"
Response = api.StreamingTranslateResponse


class EchoService(api_grpc.SpeechTranslationServiceServicer):
    """Answers each piece of audio with a word."""

    async def StreamingTranslate(  # noqa: N802 - the rpc's name
        self, requests: AsyncIterator[api.StreamingTranslateRequest], _: object
    ) -> AsyncIterator[Response]:
        samples = seq = rate_hz = 0
        arrivals = ArrivalClock(1)
        async for request in requests:
            if request.HasField("config"):
                clock = api.ELAPSED_CLOCK_LIVE
                rate_hz = request.config.sample_rate_hertz
                arrivals = ArrivalClock(rate_hz)
                started = {"session_id": "s", "config": request.config, "elapsed_clock": clock}
                seq += 1
                yield Response(seq=seq, session_started=started)
                continue
            before, samples = samples, samples + len(request.audio) // 2
            arrivals.note(samples, time.monotonic())
            piece_samples = CHUNK_MS * rate_hz // 1000
            if before // piece_samples == samples // piece_samples:
                continue
            word = api.CommittedItem(
                text="word",
                starts_word=True,
                target_language_code="de",
                source_end_sample=samples,
                elapsed_ms=1000 * (time.monotonic() - arrivals.origin_s),
            )
            seq += 1
            yield Response(
                seq=seq,
                committed={"items": [word], "acknowledged_samples": samples - rate_hz // 10},
            )
        yield Response(seq=seq + 1, summary={"audio_samples": samples})

    async def ListModels(self, request: object, context: object) -> api.ListModelsResponse:  # noqa: N802 - the same
        del request, context
        return api.ListModelsResponse(models=[{"name": "m", "target_language_codes": ["de"]}])


async def serve_echo() -> None:
    server = grpc.aio.server()
    api_grpc.add_SpeechTranslationServiceServicer_to_server(EchoService(), server)
    print(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
    await server.start()
    await server.wait_for_termination()


async def read_streams(address: str, count: int) -> None:
    """Read the published stream ``count`` times, as pages do, until it ends."""
    host, port = address.split(":")

    async def read() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"GET /v1/streams/{STREAM}/events HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        connected.release()
        while await reader.read(1 << 16):
            pass
        writer.close()

    connected = asyncio.Semaphore(0)
    reading = [asyncio.create_task(read()) for _ in range(count)]
    for _ in range(count):
        await connected.acquire()
    print("ready", flush=True)
    await asyncio.wait(reading)


@asynccontextmanager
async def process(*command: str, **environment: str) -> AsyncIterator[tuple[psutil.Process, str]]:
    """Start a Python process; yield it and the first line that it prints."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, *command),
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert started.stdout is not None
        line = await started.stdout.readline() if command[0] == __file__ else b""
        yield psutil.Process(started.pid), line.decode().strip()
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


@asynccontextmanager
async def gateway(server: str) -> AsyncIterator[tuple[psutil.Process, str]]:
    with tempfile.TemporaryDirectory(prefix="earvoice-benchmark-") as folder:
        file = Path(folder, "address")
        settings = {"SERVER": server, "PORT": "0", "ADDRESS_FILE": str(file)}
        variables = {f"EARVOICE_GATEWAY_{name}": value for name, value in settings.items()}
        async with process("-m", "earvoice.gateway", **variables) as (running, _):
            while not file.exists():  # noqa: ASYNC110, ASYNC240 - another process's
                await asyncio.sleep(0.05)
            yield running, file.read_text(encoding="utf8").strip()  # noqa: ASYNC240 - the same


async def pace(seconds: float, sent_s: list[float]) -> AsyncIterator[bytes]:
    begun_s = time.monotonic()
    for number in range(int(seconds * 1000 / CHUNK_MS)):
        await asyncio.sleep(max(0.0, begun_s + number * CHUNK_MS / 1000 - time.monotonic()))
        sent_s.append(time.monotonic())
        yield CHUNK


async def speak_grpc(address: str, seconds: float) -> list[float]:
    """Return the milliseconds from each message to its word."""
    sent_s: list[float] = []
    waits_ms: list[float] = []
    async with connect(address) as client:
        options = TranslationOptions(("de",), paced=True)
        async for event in client.translate(pace(seconds, sent_s), options):
            if isinstance(event, Committed):
                waits_ms.append(1000 * (time.monotonic() - sent_s[len(waits_ms)]))
    return waits_ms


async def speak_socket(
    address: str, seconds: float, publish: str = "", begin: Callable[[], object] | None = None
) -> list[float]:
    """The same through the gateway; awaits ``begin`` once the stream exists."""
    config = {
        "audioEncoding": "AUDIO_ENCODING_LINEAR16",
        "sampleRateHertz": 16_000,
        "targetLanguageCodes": ["de"],
    }
    sent_s: list[float] = []
    waits_ms: list[float] = []
    async with connect_socket(f"ws://{address}/v1/translate") as socket:
        await socket.send(json.dumps({"type": "start", "config": config, "publish": publish}))
        await socket.recv()
        if begin is not None:
            await begin()  # type: ignore[misc]

        async def send() -> None:
            async for chunk in pace(seconds, sent_s):
                await socket.send(chunk)
            await socket.send('{"type": "end"}')

        sending = asyncio.create_task(send())
        async for message in socket:
            if json.loads(message)["type"] == "words":
                waits_ms.append(1000 * (time.monotonic() - sent_s[len(waits_ms)]))
        await sending
    return waits_ms


async def speak_to_readers(address: str, seconds: float, count: int) -> list[float]:
    async with AsyncExitStack() as stack:

        async def gather_readers() -> None:
            _, line = await stack.enter_async_context(
                process(__file__, "--read", address, "--readers", str(count))
            )
            assert line == "ready"

        return await speak_socket(address, seconds, STREAM, gather_readers)


async def many(speak: Callable[[], object], count: int) -> list[float]:
    rounds = await asyncio.gather(*(speak() for _ in range(count)))  # type: ignore[call-overload]
    return [wait_ms for waits_ms in rounds for wait_ms in waits_ms]


async def measure(options: argparse.Namespace) -> None:
    waits_ms: dict[str, list[float]] = {}
    spent_s: dict[str, float] = {}
    async with process(__file__, "--echo") as (_, server), gateway(server) as (door, address):
        seconds = options.seconds
        rounds: dict[str, Callable[[], object]] = {
            "gRPC, one speaker": lambda: speak_grpc(server, seconds),
            "gateway, one speaker": lambda: speak_socket(address, seconds),
            f"gateway, {options.readers} readers": lambda: speak_to_readers(
                address, seconds, options.readers
            ),
            f"gRPC, {options.pages} speakers": lambda: many(
                lambda: speak_grpc(server, seconds), options.pages
            ),
            f"gateway, {options.pages} pages": lambda: many(
                lambda: speak_socket(address, seconds), options.pages
            ),
        }
        for _ in range(options.rounds):
            for name, run in rounds.items():
                before = door.cpu_times()
                waits_ms.setdefault(name, []).extend(await run())  # type: ignore[misc]
                after = door.cpu_times()
                spent = after.user + after.system - before.user - before.system
                spent_s[name] = spent_s.get(name, 0.0) + spent
            print(f"gateway's memory: {door.memory_info().rss / 1e6:.0f} MB", flush=True)
    print("message to word        p50 ms  p95 ms   to gRPC's p95   gateway's cores")
    for name, found_ms in waits_ms.items():
        twentieths = statistics.quantiles(found_ms, n=20)
        base = waits_ms["gRPC, one speaker" if "page" not in name else list(waits_ms)[3]]
        ratio = twentieths[18] / statistics.quantiles(base, n=20)[18]
        cores = spent_s[name] / (options.rounds * seconds)
        middle = statistics.median(found_ms)
        print(f"{name:22}{middle:7.1f}{twentieths[18]:8.1f}{ratio:16.2f}{cores:18.3f}")


async def measure_page(seconds: float) -> None:
    """Print how much larger a word's lag on the page is than the service's own."""
    async with (
        process(__file__, "--echo") as (_, server),
        gateway(server) as (_, address),
        async_playwright() as playwright,
    ):
        microphone = [
            "--use-fake-ui-for-media-stream",
            "--use-fake-device-for-media-stream",
            "--autoplay-policy=no-user-gesture-required",
        ]
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", *microphone]
        )
        context = await browser.new_context(permissions=["microphone"])
        page = await context.new_page()
        await page.goto(f"http://localhost:{address.rpartition(':')[2]}/?to=de&autostart=1")
        await page.locator(".word").first.wait_for(timeout=120_000)
        await asyncio.sleep(seconds)
        added_ms = await page.locator(".word").evaluate_all(
            "words => words.map(({dataset}) => dataset.lagMs - dataset.serviceLagMs)"
        )
        await browser.close()
    twentieths = statistics.quantiles(added_ms, n=20)
    print(f"{len(added_ms)} words; lag on the page beyond the service's own, ms:")
    print(
        f"p50 {statistics.median(added_ms):.0f}  p95 {twentieths[18]:.0f}  max {max(added_ms):.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=1000)
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--page", action="store_true", help="the page's lag in Chromium, alone")
    parser.add_argument("--echo", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--read", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        asyncio.run(serve_echo())
    elif options.read:
        asyncio.run(read_streams(options.read, options.readers))
    elif options.page:
        asyncio.run(measure_page(options.seconds))
    else:
        asyncio.run(measure(options))


if __name__ == "__main__":
    main()
