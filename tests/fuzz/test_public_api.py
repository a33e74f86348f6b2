"""Whatever is sent to the public service: clear statuses, no crash, nothing held, others go on."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import psutil
import pytest

from tests.e2e.calling import assert_well_formed, call, requests, speech
from tests.e2e.running import SERVICES, Running
from tests.fuzz.attacks import ATTACKS
from tests.fuzz.exchange import Ending
from tests.soak.growth import Tell

SECONDS = float(os.environ.get("EARVOICE_FUZZ_S", "120"))
SEED = int(os.environ.get("EARVOICE_FUZZ_SEED", "1"))
# NAME:SEED of one attack that failed, to run it alone.
ONLY = os.environ.get("EARVOICE_FUZZ_ONLY", "")
ATTACKERS = 3
WITNESS = speech()[: 2 * 16_000 * 5]
QUIET_S = 60
CALMING_STREAMS = 30
ATTACK_S = 120

BAD_CODES = {"INTERNAL", "UNKNOWN", "DATA_LOSS", "UNAVAILABLE", "HUNG"}
BAD_LOG = ("Traceback", "unexpected error", "never awaited", "never retrieved")

MOST_GROWTH_OF_MEMORY = 1.10
MEBIBYTE = 2**20
# The transport's pools keep some of what messages of 5 MiB made them take, more or less of it.
SPARE_BYTES = 64 * MEBIBYTE
SPARE_HANDLES = 3

pytestmark = pytest.mark.timeout(SECONDS * 3 + 600)


@dataclass(frozen=True)
class Holding:
    resident_bytes: int
    handles: int
    threads: int

    def is_about(self, before: Holding) -> bool:
        """Whether it is no more than before, but for what allocators and pools keep."""
        most_bytes = before.resident_bytes * MOST_GROWTH_OF_MEMORY + SPARE_BYTES
        return (
            self.resident_bytes <= most_bytes
            and self.handles <= before.handles + SPARE_HANDLES
            and self.threads <= before.threads + SPARE_HANDLES
        )

    def __str__(self) -> str:
        mebibytes = self.resident_bytes / MEBIBYTE
        return f"{mebibytes:.0f} MiB, {self.handles} handles, {self.threads} threads"


def look(processes: Mapping[str, psutil.Process]) -> dict[str, Holding]:
    return {
        service: Holding(process.memory_info().rss, process.num_fds(), process.num_threads())
        for service, process in processes.items()
    }


class Siege:
    """Attackers at one service, and a good stream beside them.

    Attributes:
        endings: how many calls ended so, by code and reason.
        findings: attacks after which something was wrong, each as text.
    """

    def __init__(self, address: str) -> None:
        self.endings: Counter[tuple[str, str]] = Counter()
        self.findings: list[str] = []
        self._address = address
        self._number = 0

    async def attack(self, name: str, seed: int) -> None:
        try:
            async with asyncio.timeout(ATTACK_S):
                endings = await ATTACKS[name](self._address, random.Random(seed))
        except TimeoutError:
            endings = [Ending("HUNG")]
        self.endings.update((ending.code, ending.reason) for ending in endings)
        bad = [ending for ending in endings if ending.code in BAD_CODES]
        self.findings += [f"{name}:{seed}: {_text(ending)}" for ending in bad]

    async def run(self, expected: list) -> None:
        """Attack and witness for the whole time."""
        deadline_s = time.monotonic() + SECONDS
        async with asyncio.TaskGroup() as group:
            for _ in range(ATTACKERS):
                group.create_task(self.attack_until(deadline_s))
            group.create_task(self.witness_until(deadline_s, expected))

    async def attack_until(self, deadline_s: float) -> None:
        """Run attack after attack; their order and their seeds follow from the number."""
        while time.monotonic() < deadline_s:
            self._number += 1
            seed = SEED * 1_000_000 + self._number
            await self.attack(random.Random(seed).choice([*ATTACKS]), seed)

    async def witness_until(self, deadline_s: float, expected: list) -> None:
        """Translate a recording again and again: it says the same whatever goes on beside it."""
        while time.monotonic() < deadline_s:
            outcome = await call(self._address, requests(WITNESS))
            if outcome.text != expected:
                self.findings.append(f"the good stream: {outcome.code.name} {outcome.details}")


def _text(ending: Ending) -> str:
    return f"{ending.code} {ending.reason}: {ending.details}"


async def test_nothing_that_is_sent_harms(services: Running, tell: Tell):
    """Attacks of all kinds at once, seeded, for two minutes (EARVOICE_FUZZ_S)."""
    processes = {service: services.process_of(service) for service in SERVICES}
    siege = Siege(services.address)
    expected = (await call(services.address, requests(WITNESS))).text
    assert expected
    before = look(processes)
    if ONLY:
        name, _, seed = ONLY.partition(":")
        await siege.attack(name, int(seed))
    else:
        await siege.run(expected)
    tell(f"seed {SEED}: {siege.endings.total()} calls ended")
    for (code, reason), count in siege.endings.most_common():
        tell(f"{count:6} {code} {reason}")
    assert siege.findings == []
    assert all(process.is_running() for process in processes.values())
    logs = {service: services.log(service) for service in SERVICES}
    assert [(s, words) for s, log in logs.items() for words in BAD_LOG if words in log] == []
    await wait_until_quiet(processes["policy"])
    after = await calmed(services.address, processes, before)
    for service in SERVICES:
        tell(f"{service}: {before[service]}; afterwards {after[service]}")
    assert [s for s in SERVICES if not after[s].is_about(before[s])] == []


async def calmed(
    address: str, processes: dict[str, psutil.Process], before: dict[str, Holding]
) -> dict[str, Holding]:
    """What the services hold once good streams have let them give back what they can."""
    for _ in range(CALMING_STREAMS):
        assert_well_formed(await call(address, requests(WITNESS)))
        after = look(processes)
        if all(after[service].is_about(before[service]) for service in after):
            break
    return after


async def wait_until_quiet(process: psutil.Process) -> None:
    """Return once nobody is connected to a service any more."""
    deadline_s = time.monotonic() + QUIET_S
    while held := held_connections(process):
        assert time.monotonic() < deadline_s, f"still open: {held}"
        await asyncio.sleep(0.1)


def held_connections(process: psutil.Process) -> list[str]:
    """Connections of callers: each one's state, and whether it is open on our side."""
    connections = process.net_connections("tcp")
    ports = {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}
    ours = {c.laddr.port for c in psutil.Process().net_connections("tcp")}
    return [
        f"{c.status}, {'ours' if c.raddr.port in ours else 'gone on our side'}"
        for c in connections
        if c.laddr.port in ports and c.status != psutil.CONN_LISTEN
    ]
