"""Three real policy services behind the real Envoy: one is killed, and no word is lost."""

import asyncio
import urllib.request

import pytest

from tests.deploy.envoy_process import envoy_program, place_configuration, running_envoy
from tests.deploy.tool import free_ports
from tests.e2e.calling import speech
from tests.e2e.running import service_yard
from tests.faults.comparison import listen

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

# Nobody's key; all replicas have the same.
RESUME_KEY = "6a" * 32
SESSION_COUNT = 3
PATIENCE_S = 120.0


@pytest.fixture
def policies(tmp_path):
    """Three policy services with one encoder and one decoder; their metrics' ports with them."""
    envoy_program()
    with service_yard(tmp_path) as yard:
        targets = {
            f"{name.upper()}_TARGET": yard.start(name).address() for name in ("encoder", "decoder")
        }
        ports = free_ports(3)
        yield [
            (yard.start("policy", METRICS_PORT=str(port), RESUME_KEYS=RESUME_KEY, **targets), port)
            for port in ports
        ]


async def test_a_killed_replica_loses_no_word(policies, tmp_path):
    """In EVERY_SEGMENT each session's text is that of one that nothing happened to."""
    addresses = [service.address() for service, _ in policies]
    undisturbed = await listen(addresses[0], speech(), "every-segment", paced=False)
    assert not undisturbed.failure
    released = [await released_words(port) for _, port in policies]
    ports = place_configuration("envoy.yaml", tmp_path, addresses)
    running = running_envoy("envoy.yaml", tmp_path, ports, len(policies))
    address = await asyncio.to_thread(running.__enter__)
    try:
        listening = [
            asyncio.create_task(listen(address, speech(), "every-segment", paced=True))
            for _ in range(SESSION_COUNT)
        ]
        victim = await first_busy(policies, released)
        assert not any(task.done() for task in listening)
        victim.process.kill()
        heard = await asyncio.gather(*listening)
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)
    assert [session.failure for session in heard] == [""] * SESSION_COUNT
    expected = [word.text for word in undisturbed.words]
    assert expected
    assert [[word.text for word in session.words] for session in heard] == [
        expected
    ] * SESSION_COUNT


async def first_busy(policies, before):
    """A service that has released more words than before: it has a session in its middle."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for (service, port), count in zip(policies, before, strict=True):
                if await released_words(port) > count:
                    return service
            await asyncio.sleep(0.2)


async def released_words(metrics_port):
    return await asyncio.to_thread(_read_released_words, metrics_port)


def _read_released_words(metrics_port):
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    counts = "earvoice_word_lag_milliseconds_count"
    return sum(float(line.split()[-1]) for line in lines if line.startswith(counts))
