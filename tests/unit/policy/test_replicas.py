"""Where a session goes among replicas."""

from __future__ import annotations

import asyncio

import pytest

from earvoice.policy.backends.call import ReplicaLostError
from earvoice.policy.backends.replicas import FULL_S, BackendAccess, Replica, Replicas
from earvoice.policy.settings import NamedPort, parse_target
from earvoice.runtime.errors import (
    BackendUnavailableError,
    EarvoiceError,
    InvalidAudioError,
    ModelMismatchError,
    NotReadyError,
    SessionLimitError,
)
from earvoice.runtime.tls import ChannelTls, TlsFileError
from tests.unit.policy.fake_replicas import (
    KIND,
    NOT_SERVING,
    SERVING,
    FakeAccess,
    FakeReplica,
    running_pool,
)

A, B, C = "a:1", "b:1", "c:1"
FULL = SessionLimitError("full", retry_after_ms=1)
DRAINING = NotReadyError("draining", retry_after_ms=1)
OTHER_MODEL = ModelMismatchError("another model")


def fakes(*addresses: str) -> dict[str, FakeReplica]:
    return {address: FakeReplica() for address in addresses}


def places(pool: Replicas, **wanted) -> list[str]:
    return [replica.address for replica in pool.ready(**wanted)]


class Opener:
    """Opens on a replica unless it refuses; keeps the order of its attempts."""

    def __init__(self, **refusals: EarvoiceError) -> None:
        self.refusals = {f"{host}:1": error for host, error in refusals.items()}
        self.asked: list[str] = []

    async def __call__(self, replica: Replica) -> str:
        self.asked.append(replica.address)
        if replica.address in self.refusals:
            raise self.refusals[replica.address]
        return replica.address


class SoonFree(Opener):
    """Refuses each once."""

    async def __call__(self, replica: Replica) -> str:
        try:
            return await super().__call__(replica)
        finally:
            self.refusals.pop(replica.address, None)


async def test_only_what_serves_is_ready():
    """It says so itself, and is believed until it says otherwise."""
    replicas = fakes(A, B, C)
    replicas[B].health, replicas[C].health = NOT_SERVING, None
    async with running_pool(replicas) as running:
        await running.until_ready(A)
        replicas[B].set(SERVING)
        replicas[C].set(SERVING)
        await running.until_ready(A, B, C)
        replicas[A].set(NOT_SERVING)
        await running.until_ready(B, C)
        replicas[B].set(None)
        await running.until_ready(C)


async def test_the_fewest_sessions_come_first_and_equals_in_turn():
    """So sessions are spread, whatever the order of the addresses."""
    async with running_pool(fakes(A, B, C)) as running:
        await running.until_ready(A, B, C)
        assert {places(running.pool)[0] for _ in range(3)} == {A, B, C}
        for replica in running.pool.ready():
            replica.session_count = {A: 2, B: 0, C: 1}[replica.address]
        for _ in range(3):
            assert places(running.pool) == [B, C, A]


async def test_a_lost_replica_is_the_last_choice():
    """Even with the fewest sessions."""
    async with running_pool(fakes(A, B)) as running:
        await running.until_ready(A, B)
        lost, other = running.pool.ready()
        other.session_count = 5
        assert running.pool.ready(last=lost) == [other, lost]


async def test_a_lost_replica_must_say_anew_that_it_serves():
    """A stopped process says nothing: it is out until it runs again."""
    replicas = fakes(A)
    async with running_pool(replicas) as running:
        await running.until_ready(A)
        (replica,) = running.pool.ready()
        replicas[A].health = NOT_SERVING
        running.pool.mark_lost(replica)
        assert running.pool.ready() == []
        replicas[A].health = SERVING
        await running.until_ready(A)


async def test_only_replicas_of_the_model_are_taken():
    """One that starts again with another model is noticed."""
    replicas = fakes(A, B)
    replicas[B].model_hash = "h2"
    async with running_pool(replicas) as running:
        await running.until_ready(A, B)
        assert places(running.pool, model_hash="h2") == [B]
        replicas[A].model_hash = "h2"
        running.pool.mark_lost(next(r for r in running.pool.ready() if r.address == A))
        await running.until_ready(A, B)
        assert sorted(places(running.pool, model_hash="h2")) == [A, B]


@pytest.mark.parametrize("refusal", [FULL, DRAINING, OTHER_MODEL, ReplicaLostError("gone")])
async def test_a_refusal_leads_to_the_next(refusal: EarvoiceError):
    """Each is asked once."""
    async with running_pool(fakes(A, B)) as running:
        await running.until_ready(A, B)
        opener = Opener(a=refusal)
        for _ in range(2):
            assert await running.pool.open(opener, "h1", 1.0) == B
        assert opener.asked.count(B) == 2


@pytest.mark.parametrize(
    ("refusals", "told"),
    [
        ((DRAINING, FULL), FULL),
        ((ReplicaLostError("gone"), DRAINING), DRAINING),
        ((OTHER_MODEL, ReplicaLostError("gone")), None),
        ((FULL, FULL), FULL),
    ],
)
async def test_the_most_helpful_refusal_is_told(refusals, told: EarvoiceError | None):
    """That of a replica that is there and full, if there is one."""
    async with running_pool(fakes(A, B)) as running:
        await running.until_ready(A, B)
        with pytest.raises(EarvoiceError) as caught:
            await running.pool.open(Opener(a=refusals[0], b=refusals[1]), "h1", 1.0)
    assert (caught.value.reason, caught.value.message) == (
        (told or refusals[1]).reason,
        (told or refusals[1]).message,
    )


async def test_a_replica_that_goes_while_another_is_asked_is_not_asked():
    """Its channel may be closed by then."""
    async with running_pool(fakes(A, B)) as running:
        await running.until_ready(A, B)
        asked: list[str] = []

        async def refuse(replica: Replica) -> str:
            asked.append(replica.address)
            for other in running.pool.ready():
                other.is_listed = False
            raise DRAINING

        with pytest.raises(NotReadyError):
            await running.pool.open(refuse, "h1", 0.0)
        assert len(asked) == 1


async def test_what_is_no_refusal_is_told_at_once():
    """Another replica would say the same."""
    async with running_pool(fakes(A, B)) as running:
        await running.until_ready(A, B)
        opener = Opener(a=InvalidAudioError("x"), b=InvalidAudioError("x"))
        with pytest.raises(InvalidAudioError):
            await running.pool.open(opener, "h1", 1.0)
    assert len(opener.asked) == 1


async def test_a_session_may_ask_again():
    """Until somebody has room, or its time is over."""
    async with running_pool(fakes(A)) as running:
        await running.until_ready(A)
        opener = SoonFree(a=FULL)
        assert await running.pool.open(opener, "h1", 10.0, asks_again=True) == A
        assert opener.asked == [A, A]
        with pytest.raises(SessionLimitError):
            await running.pool.open(Opener(a=FULL), "h1", 0.0, asks_again=True)


async def test_full_replicas_are_not_asked_again_at_once():
    """Whoever knocks meanwhile is refused without them, each with a time of its own."""
    async with running_pool(fakes(A, B)) as running:
        await running.until_ready(A, B)
        opener = Opener(a=FULL, b=FULL)
        waits_ms = set()
        for _ in range(5):
            with pytest.raises(SessionLimitError, match="full") as refused:
                await running.pool.open(opener, "h1", 1.0)
            waits_ms.add(refused.value.retry_after_ms)
        assert sorted(opener.asked) == [A, B]
        assert len(waits_ms) == 5
        for replica in running.pool.ready():
            replica.session_count += 1
            replica.note_session_left()
        opener.refusals.pop(B)
        assert await running.pool.open(opener, "h1", 1.0) == B


async def test_a_backend_s_own_longer_time_is_told():
    """It may know better."""
    async with running_pool(fakes(A)) as running:
        await running.until_ready(A)
        longer = SessionLimitError("full", retry_after_ms=60_000, limit="3")
        with pytest.raises(SessionLimitError) as refused:
            await running.pool.open(Opener(a=longer), "h1", 1.0)
    assert refused.value.retry_after_ms == 60_000
    assert refused.value.metadata == {"limit": "3"}


async def test_a_replica_is_waited_for():
    """And its absence is told with a time to come again."""
    replicas = fakes(A)
    replicas[A].health = None
    async with running_pool(replicas) as running:
        with pytest.raises(BackendUnavailableError, match=r"no encoder was ready within 0\.05 s"):
            await running.pool.open(Opener(), "h1", 0.05)
        opening = asyncio.create_task(running.pool.open(Opener(), "h1", 10.0))
        replicas[A].set(SERVING)
        assert await opening == A


async def test_a_name_stands_for_all_its_addresses():
    """Each is a replica of its own."""
    async with running_pool(fakes("127.0.0.1:7", "[::1]:7"), "dns:///localhost:7") as running:
        async with asyncio.timeout(120):
            while not running.pool.ready():
                running.changed.clear()
                await running.changed.wait()
        assert set(places(running.pool)) <= {"127.0.0.1:7", "[::1]:7"}


async def test_replicas_come_and_go_with_the_name_s_addresses():
    """One that is no longer listed gets no more sessions, and is forgotten when it has none."""
    found = [A]

    async def addresses_of(named: NamedPort) -> list[str]:
        changed.set()
        return [*found]

    changed = asyncio.Event()
    access = FakeAccess(fakes(A, B))
    target = parse_target("dns:///replicas:1")
    roster = Replicas(KIND, target, access, changed.set, addresses_of)

    async def until(*states: tuple[str, bool]) -> None:
        while {(r.address, r.is_ready) for r in roster.all} != set(states):
            changed.clear()
            roster.look_up_soon()
            await changed.wait()

    running = asyncio.create_task(roster.run())
    async with asyncio.timeout(120):
        await until((A, True))
        found[:] = [A, B]
        await until((A, True), (B, True))
        left = next(replica for replica in roster.all if replica.address == A)
        left.session_count, found[:] = 1, [B]
        await until((A, False), (B, True))
        left.session_count = 0
        await until((B, True))
    running.cancel()
    await asyncio.wait({running})


async def test_certificates_that_are_being_replaced_end_nothing():
    """A new address is taken as soon as they can be read again."""

    class Replacing(FakeAccess):
        def open_channel(self, address: str):
            if address == B and not whole:
                refused.set()
                raise TlsFileError("ca.crt cannot be used")
            return super().open_channel(address)

    async def addresses_of(named: NamedPort) -> list[str]:
        return [A, B]

    whole, refused, changed = [], asyncio.Event(), asyncio.Event()
    target = parse_target("dns:///replicas:1")
    roster = Replicas(KIND, target, Replacing(fakes(A, B)), changed.set, addresses_of)
    running = asyncio.create_task(roster.run())
    async with asyncio.timeout(120):
        await refused.wait()
        whole.append(True)
        while {replica.address for replica in roster.ready()} != {A, B}:
            changed.clear()
            roster.look_up_soon()
            await changed.wait()
    running.cancel()
    await asyncio.wait({running})


def test_certificates_of_looked_up_addresses_bear_the_name():
    """Unless another one is given for all."""
    assert BackendAccess().named("encoder").tls is None
    plain = BackendAccess(ChannelTls()).named("encoder").tls
    given = BackendAccess(ChannelTls(server_name="engine")).named("encoder").tls
    assert plain is not None
    assert given is not None
    assert (plain.server_name, given.server_name) == ("encoder", "engine")


async def test_a_name_that_is_not_known_is_no_end():
    """It may be later."""
    async with running_pool(fakes(A), f"dns:///no-such-host.invalid:7,{A}") as running:
        await running.until_ready(A)


def test_a_full_replica_is_believed_for_a_while():
    """Then it is asked again: sessions of others may have ended."""
    now_s = [1000.0]
    replica = Replica(KIND, A, FakeAccess(fakes(A)), lambda: None, lambda: now_s[0])
    assert replica.full is None
    replica.note_full(FULL)
    now_s[0] += FULL_S - 0.1
    assert replica.full is FULL
    now_s[0] += 0.2
    assert replica.full is None


def test_a_full_replica_is_asked_as_soon_as_a_session_has_left_it():
    """There is room now."""
    replica = Replica(KIND, A, FakeAccess(fakes(A)), lambda: None)
    replica.note_full(FULL)
    replica.note_session_left()
    assert replica.full is None
