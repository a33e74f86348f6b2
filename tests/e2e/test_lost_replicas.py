"""Two encoders and two decoders as processes: one is killed or stopped, and no word changes."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from tests.deploy.tool import free_ports
from tests.e2e.calling import (
    OpenStream,
    Outcome,
    assert_well_formed,
    call,
    halves,
    open_stream,
    requests,
    speech,
)
from tests.e2e.running import LoneService, ServiceYard, service_yard
from tests.until import until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]
BACKENDS = ("encoder", "decoder")


@dataclass
class Cluster:
    yard: ServiceYard
    policy: LoneService
    replicas: dict[str, list[LoneService]]
    _undisturbed: Outcome | None = None

    def replace(self, dead: LoneService, service: str) -> None:
        """Start another on the port of one that was killed."""
        port = dead.address().rpartition(":")[2]
        self.replicas[service].remove(dead)
        self.replicas[service].append(self.yard.start(service, PORT=port))

    async def undisturbed(self) -> Outcome:
        """What the recording says when nothing happens; heard once."""
        if self._undisturbed is None:
            self._undisturbed = await call(self.policy.address(), requests(speech()))
        return self._undisturbed


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with service_yard(tmp_path_factory.mktemp("cluster")) as yard:
        # Whoever wants any port gets none of these while one is started again.
        ports = iter(free_ports(2 * len(BACKENDS)))
        replicas = {
            service: [yard.start(service, PORT=str(next(ports))) for _ in range(2)]
            for service in BACKENDS
        }
        targets = {
            f"{service.upper()}_TARGET": ",".join(replica.address() for replica in both)
            for service, both in replicas.items()
        }
        policy = yard.start("policy", ANSWER_TIMEOUT_MS="10000", **targets)
        policy.address()
        yield Cluster(yard, policy, replicas)


async def kill(cluster: Cluster, service: str) -> None:
    """Gone at once; another is there for the next test."""
    dead = cluster.replicas[service][0]
    dead.process.kill()
    await asyncio.to_thread(dead.process.wait)
    cluster.replace(dead, service)


async def stop(cluster: Cluster, service: str) -> None:
    """Its connections stay, and nothing is answered."""
    cluster.replicas[service][0].process.send_signal(signal.SIGSTOP)


async def term(cluster: Cluster, service: str) -> None:
    """It drains, as in a rolling restart."""
    leaving = cluster.replicas[service][0]
    leaving.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(leaving.process.wait, 60) == 0
    cluster.replace(leaving, service)


FAULTS = {"SIGKILL": kill, "SIGSTOP": stop, "SIGTERM": term}


def known_to_serve(policy_log: str) -> set[str]:
    """Addresses that the policy service last found ready."""
    serving: set[str] = set()
    # gRPC writes lines of its own, and the last one may not be whole.
    ours = [line for line in policy_log.splitlines() if line.startswith("{") and line.endswith("}")]
    for line in map(json.loads, ours):
        if line["message"] == "replica ready":
            serving.add(line["address"])
        if line["message"] == "replica not ready":
            serving.discard(line["address"])
    return serving


@pytest.fixture
async def mended(cluster: Cluster) -> AsyncIterator[Cluster]:
    """Every replica serves before and after, and the policy service knows that they do."""
    addresses = {replica.address() for both in cluster.replicas.values() for replica in both}
    await until(lambda: known_to_serve(cluster.policy.log) == addresses)
    yield cluster
    for both in cluster.replicas.values():
        for replica in both:
            replica.process.send_signal(signal.SIGCONT)
            replica.address()


async def finished(stream: OpenStream, rest: list) -> Outcome:
    await stream.send(*rest)
    await stream.end_audio()
    return await stream.read_rest()


@pytest.mark.parametrize("service", BACKENDS)
@pytest.mark.parametrize("fault", FAULTS)
async def test_two_streams_outlive_a_replica(mended: Cluster, fault: str, service: str):
    """One stream runs on each, so one of them loses its own; both say what they would have said."""
    address = mended.policy.address()
    undisturbed = await mended.undisturbed()
    first, rest = halves(speech())
    async with (
        asyncio.timeout(200),
        open_stream(address) as one,
        open_stream(address) as other,
    ):
        for stream in (one, other):
            await stream.send(*first)
            await stream.read_until("committed")
        await FAULTS[fault](mended, service)
        outcomes = await asyncio.gather(finished(one, rest), finished(other, rest))
    for outcome in outcomes:
        assert_well_formed(outcome)
        assert outcome.text == undisturbed.text
    replays = sum(outcome.of("summary")[0].replays for outcome in outcomes)
    # A decoder that is known to be gone is left between two generations, at no cost.
    assert replays == 1 or (replays == 0 and service == "decoder")
