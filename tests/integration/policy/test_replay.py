"""A replica that is lost, leaves or is full: the stream goes on elsewhere, and no word changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest

from earvoice.api.v1 import types_pb2
from earvoice.policy.backends import Backends
from earvoice.policy.backends.call import BackendTimeouts
from earvoice.runtime.errors import (
    IdleError,
    InvalidAudioError,
    NotReadyError,
    SessionLimitError,
    UnauthenticatedError,
)
from tests.e2e.calling import (
    OpenStream,
    Outcome,
    Request,
    assert_well_formed,
    audio_messages,
    call,
    config,
    open_stream,
    requests,
)
from tests.integration.policy.fleet import Fleet, all_ready, running_fleet
from tests.integration.policy.scripted_backends import (
    MODEL,
    RATE_HERTZ,
    STATE_SAMPLES,
    ScriptedReplica,
    scripted_replica,
)
from tests.unit.policy.running import OPTIONS
from tests.until import until

SERVICES = ("encoder", "decoder")
SECOND_BYTES = RATE_HERTZ * 2
AUDIO = bytes(SECOND_BYTES * 8)
HALF = audio_messages(AUDIO[: len(AUDIO) // 2])
REST = audio_messages(AUDIO[len(AUDIO) // 2 :])
ALONE = [Request(config=config())]
"""For those who are refused: what they send meanwhile may meet the end of their call."""
WORDS = [f"w{number}" for number in range(26)]

Fault = Callable[[ScriptedReplica], Awaitable[None]]


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with running_fleet() as running:
        yield running


def failing(failure) -> Fault:
    async def fault(replica: ScriptedReplica) -> None:
        replica.fail(failure)

    return fault


async def stopping(replica: ScriptedReplica) -> None:
    replica.stop()


FAULTS: dict[str, Fault] = {
    "dies": ScriptedReplica.die,
    "proxy says INTERNAL": failing(grpc.StatusCode.INTERNAL),
    "proxy says CANCELLED": failing(grpc.StatusCode.CANCELLED),
    "proxy says UNKNOWN": failing(grpc.StatusCode.UNKNOWN),
    "drains": failing(NotReadyError("this server is stopping", retry_after_ms=100)),
    "has given us up": failing(IdleError("no command came for 3 s")),
    "is stopped": stopping,
}


async def test_counting_the_replicas_moves_nobody_s_turn(fleet: Fleet):
    """Metrics are read in a thread of their own, and as often as an operator likes."""
    for _ in range(4):
        fleet.backends.ready_counts()
        assert_well_formed(await call(fleet.address, requests(AUDIO[:SECOND_BYTES])))
    for replica in (*fleet.encoders, *fleet.decoders):
        assert replica.servicer.openings if replica in fleet.encoders else replica.servicer.requests


async def test_a_long_segment_comes_in_pieces(fleet: Fleet):
    """As after a resume: a message too long for the transport would look like a lost replica."""
    seconds = bytes(17 * 2**20)
    traces = dict.fromkeys(SERVICES, "")
    async with fleet.backends.open(OPTIONS, MODEL.hash, "s", traces) as (encoder, _):
        await encoder.reset(0, 0)
        encoded = await encoder.encode(seconds)
        assert encoder.replay_count == 0
    assert (
        encoded.evidence.span_end_samples[-1] == len(seconds) // 2 // STATE_SAMPLES * STATE_SAMPLES
    )


async def disturbed(fleet: Fleet, disturb: Callable[[], Awaitable[None]], **changes) -> Outcome:
    """A stream that something happens to in its middle."""
    async with open_stream(fleet.address, **changes) as stream, asyncio.timeout(200):
        await stream.send(*HALF)
        await read_segments(stream, 4)
        await disturb()
        return await rest_of(stream)


async def read_segments(stream: OpenStream, count: int) -> None:
    for _ in range(count):
        await stream.read_until("segment_done")


async def rest_of(stream: OpenStream) -> Outcome:
    try:
        await stream.send(*REST)
        await stream.end_audio()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass  # The session has ended already: the rest says how.
    return await stream.read_rest()


def assert_undisturbed(outcome: Outcome) -> None:
    assert_well_formed(outcome)
    assert [item.text for item in outcome.items] == WORDS


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_lost_replica_costs_no_word(fleet: Fleet, fault: str, service: str):
    """Another one does its work again, and the summary tells of it."""
    undisturbed = await call(fleet.address, requests(AUDIO))

    async def disturb() -> None:
        await FAULTS[fault](fleet.busy(service))

    outcome = await disturbed(fleet, disturb)
    assert_undisturbed(outcome)
    assert outcome.text == undisturbed.text
    replays = outcome.of("summary")[0].replays
    # A decoder that is known to be gone before the next generation is left at no cost.
    assert replays == 1 or (replays == 0 and service == "decoder")
    assert fleet.backends.replays[service] == replays


@pytest.mark.parametrize("beam_size", [1, 3])
async def test_a_generation_goes_on_where_it_was_lost(fleet: Fleet, beam_size: int):
    """What was read of it is the beginning of the other replica's draft."""
    first, second = fleet.decoders
    for replica in fleet.decoders:
        replica.servicer.gate.clear()
    changes = {"beam_size": beam_size, "enable_hypotheses": True}
    async with open_stream(fleet.address, **changes) as stream, asyncio.timeout(200):
        await stream.read_until("session_started")
        lost = fleet.busy("decoder")
        other = second if lost is first else first
        lost.servicer.gate.set()
        other.servicer.gate.set()
        lost.servicer.failure_after = 3 if beam_size == 1 else 1
        lost.fail(grpc.StatusCode.UNAVAILABLE)
        await stream.send(*HALF)
        outcome = await rest_of(stream)
    assert_undisturbed(outcome)
    again = other.servicer.requests[0]
    asked = lost.servicer.requests[-1]
    assert again.prefix == asked.prefix
    assert len(again.draft) > len(asked.draft) or beam_size > 1
    assert outcome.of("summary")[0].replays == 1


@pytest.mark.parametrize("service", SERVICES)
async def test_a_slow_replica_is_waited_for(service: str):
    """It answers nothing for longer than the timeouts, but tells that it is alive."""
    timeouts = BackendTimeouts(answer_s=4.0, slow_answer_s=60.0, replacement_s=15.0)
    async with (
        running_fleet(timeouts=timeouts) as fleet,
        open_stream(fleet.address) as stream,
        asyncio.timeout(200),
    ):
        await stream.read_until("session_started")
        busy = fleet.busy(service)
        busy.servicer.gate.clear()
        await stream.send(*HALF)
        asked = busy.health.asked
        for _ in range(3):
            asked.clear()
            await asked.wait()
        busy.servicer.gate.set()
        outcome = await rest_of(stream)
    assert_undisturbed(outcome)
    assert outcome.of("summary")[0].replays == 0


@pytest.mark.parametrize("service", SERVICES)
async def test_a_replica_that_is_slow_for_too_long_is_left(service: str):
    """Its process lives, its engine does not."""
    timeouts = BackendTimeouts(answer_s=0.5, slow_answer_s=1.5, replacement_s=15.0)
    async with running_fleet(timeouts=timeouts) as fleet:

        async def disturb() -> None:
            fleet.busy(service).servicer.gate.clear()

        outcome = await disturbed(fleet, disturb)
    assert_undisturbed(outcome)
    assert outcome.of("summary")[0].replays == 1


@pytest.mark.parametrize("service", SERVICES)
async def test_the_third_loss_in_an_utterance_ends_the_stream(service: str):
    """It says that the recording may be what ends them, and not to come again."""
    async with running_fleet(4, 4) as fleet:
        for replica in fleet.replicas(service):
            replica.fail(grpc.StatusCode.INTERNAL)
        outcome = await call(fleet.address, requests(AUDIO, size=len(AUDIO)))
    assert (outcome.code.name, outcome.reason) == ("UNAVAILABLE", "BACKEND_UNAVAILABLE")
    assert "2 others" in outcome.details
    assert not outcome.has_retry


@pytest.mark.parametrize("service", SERVICES)
async def test_losses_that_an_answer_follows_do_not_end_the_stream(service: str):
    """Three in an utterance: each replica after the first has survived its audio."""
    async with (
        running_fleet() as fleet,
        open_stream(fleet.address) as stream,
        asyncio.timeout(200),
    ):
        for second in range(4):
            await stream.send(*audio_messages(AUDIO[second * SECOND_BYTES :][:SECOND_BYTES]))
            await read_segments(stream, 1)
            for replica in fleet.replicas(service):
                replica.servicer.failure = None
            if second < 3:
                fleet.busy(service).fail(grpc.StatusCode.INTERNAL)
        await stream.send(*audio_messages(AUDIO[4 * SECOND_BYTES :]))
        await stream.end_audio()
        outcome = await stream.read_rest()
    assert_undisturbed(outcome)
    assert fleet.backends.replays[service] == 3


async def test_a_final_error_is_told_as_it_is(fleet: Fleet):
    """Another replica would say the same."""

    async def disturb() -> None:
        fleet.busy("encoder").fail(InvalidAudioError("broken"))

    outcome = await disturbed(fleet, disturb)
    assert outcome.reason == "INVALID_AUDIO"
    assert fleet.backends.replays["encoder"] == 0


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(
    "refusal",
    [
        SessionLimitError("all 1 sessions are taken", retry_after_ms=100),
        NotReadyError("this server is draining", retry_after_ms=100),
        UnauthenticatedError("the token is not valid or has expired"),
        grpc.StatusCode.UNAVAILABLE,
    ],
    ids=["full", "draining", "stranger", "gone"],
)
async def test_a_replica_that_takes_no_session_is_passed_over(fleet: Fleet, service: str, refusal):
    """The next one takes it; nothing was lost by that."""
    fleet.replicas(service)[0].servicer.refusal = refusal
    for _ in range(2):
        outcome = await call(fleet.address, requests(AUDIO))
        assert_undisturbed(outcome)
        assert outcome.of("summary")[0].replays == 0


async def test_when_all_are_full_the_client_is_told_when_to_come_again(fleet: Fleet):
    """The refusal of a replica that is there says more than that another is not."""
    full, draining = fleet.encoders
    full.servicer.refusal = SessionLimitError("all 1 sessions are taken", retry_after_ms=100)
    draining.servicer.refusal = NotReadyError("this server is draining", retry_after_ms=100)
    outcome = await call(fleet.address, ALONE)
    assert (outcome.code.name, outcome.reason) == ("RESOURCE_EXHAUSTED", "SESSION_LIMIT")
    assert outcome.has_retry


async def test_who_knocks_while_all_are_full_does_not_reach_them(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
):
    """Until a session on one of them ends: then its place is given at once."""
    monkeypatch.setattr("earvoice.policy.backends.replicas.FULL_S", 60.0)
    async with open_stream(fleet.address) as first, asyncio.timeout(200):
        await first.read_until("session_started")
        for encoder in fleet.encoders:
            encoder.servicer.refusal = SessionLimitError("all 1 sessions are taken")
        outcomes = [await call(fleet.address, ALONE) for _ in range(3)]
        assert {outcome.reason for outcome in outcomes} == {"SESSION_LIMIT"}
        # One has opened the first session; both were asked for the second.
        assert sum(len(encoder.servicer.openings) for encoder in fleet.encoders) == 3
        assert fleet.backends.refused == {"SESSION_LIMIT": 3}
        fleet.busy("encoder").servicer.refusal = None
        await first.send(*HALF)
        await rest_of(first)
    assert_undisturbed(await call(fleet.address, requests(AUDIO)))


async def test_a_draining_encoder_is_left_at_the_utterance_s_end(fleet: Fleet):
    """That is a move and no replay: what it holds is done with."""
    cut = {"endpointing": {"max_utterance": {"seconds": 5}}}
    async with open_stream(fleet.address, **cut) as stream, asyncio.timeout(200):
        await stream.send(*HALF)
        await stream.read_until("segment_done")
        left, other = fleet.busy("encoder"), fleet.idle("encoder")
        await left.tell(serving=False)
        await all_ready(fleet.backends, 1, 2)
        outcome = await rest_of(stream)
    assert_well_formed(outcome)
    assert outcome.of("summary")[0].replays == 0
    assert not left.servicer.session_count
    assert any(command[0] == "reset" for command in other.servicer.commands)


async def test_a_draining_decoder_is_left_at_once(fleet: Fleet):
    """Each generation brings all that it needs."""
    async with open_stream(fleet.address) as stream, asyncio.timeout(200):
        await stream.send(*HALF)
        await stream.read_until("segment_done")
        left, other = fleet.busy("decoder"), fleet.idle("decoder")
        await left.tell(serving=False)
        await all_ready(fleet.backends, 2, 1)
        outcome = await rest_of(stream)
    assert_undisturbed(outcome)
    assert outcome.of("summary")[0].replays == 0
    assert other.servicer.requests


@pytest.mark.parametrize("service", SERVICES)
async def test_the_only_replica_may_come_back(service: str):
    """A stream waits for it, and goes on where it was."""
    async with running_fleet(1, 1) as fleet:
        replica = fleet.replicas(service)[0]

        async def disturb() -> None:
            await replica.die()
            await replica.start()

        outcome = await disturbed(fleet, disturb)
    assert_undisturbed(outcome)
    assert outcome.of("summary")[0].replays <= 1


@pytest.mark.parametrize("service", SERVICES)
async def test_a_stream_ends_when_no_replica_comes_back(service: str):
    """After the wait, with a time to come again."""
    timeouts = BackendTimeouts(answer_s=0.6, replacement_s=0.5)
    async with running_fleet(1, 1, timeouts=timeouts) as fleet:
        outcome = await disturbed(fleet, fleet.replicas(service)[0].die)
    assert (outcome.code.name, outcome.reason) == ("UNAVAILABLE", "BACKEND_UNAVAILABLE")
    assert outcome.has_retry
    assert f"no {service} was ready within 0.5 s" in outcome.details


async def test_sessions_are_spread(fleet: Fleet):
    """The replica with the fewest sessions gets the next."""
    async with open_stream(fleet.address) as one, open_stream(fleet.address) as other:
        await one.read_until("session_started")
        await other.read_until("session_started")
        for service in SERVICES:
            counts = [replica.servicer.session_count for replica in fleet.replicas(service)]
            assert counts == [1, 1]


async def test_a_session_stays_with_its_model():
    """Two models in the fleet: encoder and decoder are of one, before and after a loss."""
    upgraded = types_pb2.ModelDescription()
    upgraded.CopyFrom(MODEL)
    upgraded.hash = "h2"
    async with running_fleet(3, 3, models=[MODEL, MODEL, upgraded]) as fleet:
        assert [model.hash for model in fleet.backends.models] == ["h1", "h2"]
        for service in SERVICES:

            async def disturb(service: str = service) -> None:
                await fleet.busy(service).die()

            assert_undisturbed(await disturbed(fleet, disturb))
        assert fleet.encoders[2].servicer.commands == []
        assert fleet.decoders[2].servicer.requests == []


class Garbage(grpc.GenericRpcHandler):
    """Whatever is asked, no message comes back."""

    def __init__(self) -> None:
        self.asked_count = 0

    def service(self, handler_call_details: grpc.HandlerCallDetails):
        if "Health" in handler_call_details.method:
            return None

        async def answer(request: bytes, context: object) -> bytes:
            self.asked_count += 1
            return b"\xff\xff"

        return grpc.unary_unary_rpc_method_handler(answer)


async def test_a_replica_that_is_not_understood_ends_nothing():
    """It is asked again, and the others serve."""
    garbage, server = Garbage(), grpc.aio.server()
    server.add_generic_rpc_handlers([garbage])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    encoder, decoder = scripted_replica("encoder"), scripted_replica("decoder")
    for replica in (encoder, decoder):
        await replica.start()
    backends = Backends(f"127.0.0.1:{port},{encoder.address}", decoder.address)
    running = asyncio.create_task(backends.run())
    async with asyncio.timeout(120):
        await until(lambda: garbage.asked_count >= 2 or running.done())
        assert not running.done()
        await all_ready(backends, 1, 1)
    running.cancel()
    await asyncio.wait({running})
    for replica in (encoder, decoder):
        await replica.die()
    await server.stop(None)
