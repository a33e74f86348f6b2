"""Count the functions that one segment of live audio runs: `python tools/trace_segment.py`.

Runs the client and the policy service in this process, on a scripted encoder and decoder, and
traces every call of our own Python functions. A segment begins when the client has read the
`SegmentDone` of the one before, and ends with its own. Then prints the types that a token has on
its way from the decoder's step to the client's word.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import re
import signal
import socket
import statistics
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from types import FrameType

from earvoice.client import (
    Committed,
    SegmentDone,
    TranslationClient,
    TranslationOptions,
    connect,
)
from earvoice.client.audio import pace
from earvoice.client.errors import TranslationError
from earvoice.policy.server import serve
from earvoice.policy.settings import PolicySettings
from earvoice.runtime.audio_format import AudioFormat
from earvoice.runtime.engine import LoopLagSelector
from earvoice.runtime.settings import load_settings

ROOT = Path(__file__).resolve().parent.parent

# Some distributions contain a package named `tests`, so ours is found by its path.
sys.path.insert(0, str(ROOT / "tests" / "integration" / "policy"))
scripted_backends = importlib.import_module("scripted_backends")

RATE_HERTZ = scripted_backends.RATE_HERTZ
SEGMENT_S = 0.8
CHUNK_S = 0.08
POLL_S = 0.1
AREAS = {
    "client": ("clients/earvoice/client/",),
    "policy": ("services/earvoice/policy/", "services/earvoice/policies/"),
    "telemetry": ("services/earvoice/telemetry/",),
}
OURS = tuple(folder for folders in AREAS.values() for folder in folders)

COMPREHENSION = re.compile(r"\.<locals>\.<(list|set|dict)comp>|\.<locals>\.<genexpr>")

Function = tuple[str, str]
"""File, relative to the repository's root, and qualified name."""

TOKEN_SHAPES = (
    ("decoder", "PredictedToken"),
    ("decoder's wire", "Step"),
    ("policy", "Token, Word"),
    ("public wire", "CommittedItem"),
    ("client", "CommittedWord"),
)


class CallTrace:
    """Counts the calls of our functions in every thread; resuming a coroutine counts as a call."""

    def __init__(self) -> None:
        self.calls: Counter[Function] = Counter()
        self._names: dict[object, Function | None] = {}

    def start(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def stop(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def take(self) -> Counter[Function]:
        """The calls since the last time."""
        calls, self.calls = self.calls, Counter()
        return calls

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in self._names:
            self._names[code] = _function(code.co_filename, code.co_qualname)
        if (function := self._names[code]) is not None:
            self.calls[function] += 1


def _function(filename: str, name: str) -> Function | None:
    # Whether a comprehension has its own frame depends on the interpreter's version.
    name = COMPREHENSION.sub("", name)
    path = filename.removeprefix(f"{ROOT}/")
    is_ours = path != filename and path.startswith(OURS)
    return (path, name) if is_ours else None


async def trace_segments(segment_count: int) -> list[Counter[Function]]:
    """The calls of each segment that released words, without an utterance's first and last."""
    # These answer health checks, as the services do; otherwise they would be asked all the time.
    encoder, decoder = map(scripted_backends.scripted_replica, ("encoder", "decoder"))
    await encoder.start()
    await decoder.start()
    os.environ.update(
        EARVOICE_POLICY_PORT=str(_free_port()),
        EARVOICE_POLICY_ENCODER_TARGET=encoder.address,
        EARVOICE_POLICY_DECODER_TARGET=decoder.address,
    )
    settings = load_settings(PolicySettings)
    serving = asyncio.create_task(serve(settings, LoopLagSelector()))
    trace, segments = CallTrace(), []
    audio = AudioFormat("linear16", RATE_HERTZ, 1)
    chunk = bytes(2 * int(CHUNK_S * RATE_HERTZ))
    chunks = [chunk] * int((segment_count + 0.5) * SEGMENT_S / CHUNK_S)
    async with connect(f"127.0.0.1:{settings.port}") as client:
        await _until_served(client)
        trace.start()
        options = TranslationOptions(("de",), audio=audio)
        async with aclosing(client.translate(pace(chunks, audio), options)) as events:
            has_words = False
            async for event in events:
                has_words |= isinstance(event, Committed)
                if isinstance(event, SegmentDone):
                    calls = trace.take()
                    if has_words and event.segment > 1 and not event.ends_utterance:
                        segments.append(calls)
                    has_words = False
        trace.stop()
    os.kill(os.getpid(), signal.SIGTERM)
    await serving
    await encoder.die()
    await decoder.die()
    return segments


async def _until_served(client: TranslationClient) -> None:
    while True:
        try:
            await client.list_models()
        except TranslationError:
            await asyncio.sleep(POLL_S)
        else:
            return


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def rows(calls: Counter[Function]) -> Iterator[tuple[str, int, int, int]]:
    """Area, files, functions and calls; the total of all areas first."""
    areas = {"all three": OURS, **AREAS}
    for area, folders in areas.items():
        inside = {function: n for function, n in calls.items() if function[0].startswith(folders)}
        yield area, len({path for path, _ in inside}), len(inside), sum(inside.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--segments", type=int, default=8, help="segments to stream")
    parser.add_argument("--functions", action="store_true", help="list files and functions, too")
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    segments = asyncio.run(trace_segments(arguments.segments))
    if not segments:
        sys.exit("no segment released a word")
    middle = statistics.median_low([len(calls) for calls in segments])
    calls = next(calls for calls in segments if len(calls) == middle)
    print(f"the segment in the middle of {len(segments)} that released words")
    print(f"{'':12}{'files':>8}{'functions':>12}{'calls':>8}")
    for area, files, functions, count in rows(calls):
        print(f"{area:12}{files:8}{functions:12}{count:8}")
    if arguments.functions:
        for (path, name), count in sorted(calls.items()):
            print(f"  {path}  {name}  {count}")
    print("shapes of a token:")
    for place, names in TOKEN_SHAPES:
        print(f"  {place:16}{names}")


if __name__ == "__main__":
    main()
