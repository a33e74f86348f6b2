"""Policy services that stop, die or stand still under running sessions: the client goes on."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass

import pytest

from earvoice.client import (
    Committed,
    CommittedWord,
    Reconnected,
    ResumePoint,
    SegmentDone,
    TranslationOptions,
    connect,
)
from earvoice.client.audio import send_fast
from tests.deploy.tool import free_port
from tests.e2e.calling import pieces, speech
from tests.e2e.running import LoneService, ServiceYard, service_yard

KEYS = "6b" * 32
GRACE_MS = 20_000
PATIENCE_S = 120
OPTIONS = TranslationOptions(("de",), catch_up="every-segment", stall_timeout_s=2)

pytestmark = pytest.mark.torch


# Words, segments, and what was lost on the way.
Said = tuple[list[CommittedWord], list[tuple[int, int]], list[Reconnected]]


@dataclass
class Plant:
    yard: ServiceYard
    targets: dict[str, str]
    _whole: Said | None = None

    def policy(self, port: str = "0") -> LoneService:
        return self.yard.start(
            "policy", PORT=port, RESUME_KEYS=KEYS, DRAIN_GRACE_MS=str(GRACE_MS), **self.targets
        )

    async def whole(self, address: str) -> Said:
        """What is said when nothing happens; heard once, by whichever policy service."""
        if self._whole is None:
            self._whole = await translate([address])
        return self._whole


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    with service_yard(tmp_path_factory.mktemp("plant")) as yard:
        backends = {name: yard.start(name) for name in ("encoder", "decoder")}
        targets = {
            f"{name.upper()}_TARGET": service.address() for name, service in backends.items()
        }
        yield Plant(yard, targets)


async def audio(resumed: asyncio.Event) -> AsyncIterator[bytes]:
    """Speech, of which the end waits until the session has moved."""
    chunks = pieces(speech())
    async for chunk in send_fast(chunks[: len(chunks) * 3 // 4]):
        yield chunk
    await resumed.wait()
    async for chunk in send_fast(chunks[len(chunks) * 3 // 4 :]):
        yield chunk


async def translate(
    addresses: list[str], service: LoneService | None = None, number: int = 0
) -> Said:
    """Translate, and send a service a signal when the first words have come."""
    words, segments, losses = [], [], []
    resumed = asyncio.Event()
    if service is None:
        resumed.set()
    async with connect(",".join(addresses)) as client, asyncio.timeout(PATIENCE_S):
        async for event in client.translate(audio(resumed), OPTIONS):
            match event:
                case Committed():
                    if service is not None and not words:
                        service.process.send_signal(number)
                    words += event.words
                case SegmentDone():
                    segments.append((event.utterance, event.segment))
                case Reconnected():
                    losses.append(event)
                    resumed.set()
    return words, segments, losses


def text(words: list[CommittedWord]) -> list[tuple[str, bool, int, float]]:
    """What does not depend on time."""
    return [(word.text, word.starts_word, word.utterance, word.delay_ms) for word in words]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP])
async def test_a_session_outlives_its_policy_service(plant: Plant, number: signal.Signals):
    """Told to stop, killed or standing still: the other one says the rest, and nothing twice."""
    first, second = plant.policy(), plant.policy()
    addresses = [first.address(), second.address()]
    whole, all_segments, _ = await plant.whole(addresses[1])
    words, segments, losses = await translate(addresses, first, number)
    assert text(words) == text(whole)
    assert segments == all_segments
    # A machine without time for it may leave the other one silent for a while, too.
    assert losses
    if number == signal.SIGTERM:
        assert await asyncio.to_thread(first.process.wait, PATIENCE_S) == 0
    else:
        first.process.kill()
        first.process.wait()


async def test_another_client_goes_on_with_a_session(plant: Plant):
    """Its resume point, as bytes, and the audio from there on are all that it needs."""
    address = plant.policy().address()
    whole, all_segments, _ = await plant.whole(address)
    said, segments = [], []

    async def follow(start_sample: int, point: ResumePoint | None, *, leaves: bool) -> ResumePoint:
        chunks = pieces(speech()[start_sample * 2 :])
        async with connect(address) as client, asyncio.timeout(PATIENCE_S):
            stream = client.open(send_fast(chunks), OPTIONS, point)
            async with aclosing(stream.events()) as events:
                async for event in events:
                    match event:
                        case Committed():
                            said.extend(event.words)
                            if leaves:
                                break
                        case SegmentDone():
                            segments.append((event.utterance, event.segment))
            return ResumePoint.from_bytes(stream.resume_point.to_bytes())

    point = await follow(0, None, leaves=True)
    await follow(point.acknowledged_samples, point, leaves=False)
    assert text(said) == text(whole)
    assert segments == all_segments


async def test_the_command_goes_on_where_the_service_is_started_again(plant: Plant):
    """One address: killed in mid-stream and started again, the command says so and the text."""
    # Whoever wants any port does not get this one meanwhile.
    port = str(free_port())
    service = plant.policy(port)
    address = service.address()
    whole, _, _ = await plant.whole(address)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "earvoice.cli", "translate", "-", "--server", address),
        *("--to", "de", "--rate", "16000", "--fast"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    half = len(speech()) // 4 * 2
    process.stdin.write(speech()[:half])
    async with asyncio.timeout(PATIENCE_S):
        begin = await process.stdout.read(1)
        service.process.kill()
        service.process.wait()
        plant.policy(port).address()
        output, errors = await process.communicate(speech()[half:])
    assert process.returncode == 0, errors.decode()
    assert "went on elsewhere" in errors.decode()
    said = "".join(f" {w.text}" if w.starts_word else w.text for w in whole).split()
    assert (begin + output).decode().split() == said
