"""What breaks in mid-sentence costs the page no word: its own code, over real services."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.tool import node_package, program
from tests.e2e.calling import speech
from tests.e2e.running import start

DRIVER = Path(__file__).with_name("page_stream.mjs")
STREAM = Path(__file__).parents[2] / "clients" / "earvoice" / "gateway" / "page" / "stream.js"
PATIENCE_S = 240

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory):
    """All services and a gateway; what is killed is started again."""
    folder = tmp_path_factory.mktemp("losses")
    running = start(folder, options=("--gateway", "--gateway-port", "0"))
    yield running
    assert running.stop() == 0


class PageStream:
    """The page's stream in Node; ``events`` are what it has told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.events: list[dict] = []

    async def wait_for(self, wanted) -> None:
        """Read events until one is wanted."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                line = await self._process.stdout.readline()
                assert line, f"it has ended: {self.events[-1:]}"
                self.events.append(json.loads(line))
                if wanted(self.events[-1]):
                    return

    def tell(self, command: str) -> None:
        self._process.stdin.write(f"{command}\n".encode())

    def count(self, kind: str) -> int:
        return sum(event["type"] == kind for event in self.events)

    @property
    def words(self) -> list[tuple]:
        """Each word with its place in the audio."""
        return [
            (word["text"], word["starts_word"], word["utterance"], word["source_end_ms"])
            for event in self.events
            if event["type"] == "words"
            for word in event["words"]
        ]


async def caption(gateway: str, folder: Path, break_off=None) -> PageStream:
    """Caption a recording; in the middle of it something breaks."""
    packages = node_package("ws").parent
    audio = folder / "audio.pcm"
    audio.write_bytes(speech())
    module = folder / "stream.mjs"
    shutil.copy(STREAM, module)
    process = await asyncio.create_subprocess_exec(
        *(program("node"), DRIVER, module, gateway, audio, packages),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    stream = PageStream(process)
    try:
        # Words have come, and more of their sentence is still to be said.
        await stream.wait_for(lambda event: event["type"] == "words" and "resume_point" in event)
        if break_off is not None:
            break_off(stream)
        stream.tell("rest")
        await stream.wait_for(lambda event: event["type"] == "over")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    assert stream.events[-1]["failure"] is None, [
        (e["type"], len(e.get("words", ())), "resume_point" in e, e.get("acknowledged_samples"))
        for e in stream.events
    ]
    return stream


@pytest.mark.timeout(900)
async def test_no_word_is_lost_or_doubled(running, tmp_path: Path):
    """The page's connection, the gateway, and the policy service under it."""
    gateway = running.addresses["gateway"]
    undisturbed = await caption(gateway, tmp_path)
    assert len(undisturbed.words) > 10
    losses = {
        "connection": lambda stream: stream.tell("break"),
        "gateway": lambda _: running.process_of("gateway").kill(),
        "policy": lambda _: running.process_of("policy").kill(),
    }
    for name, break_off in losses.items():
        stream = await caption(gateway, tmp_path, break_off)
        assert stream.words == undisturbed.words, name
        # What broke was noticed: by the page, or for it by the gateway.
        assert stream.count("reconnected" if name == "policy" else "lost") >= 1, name
