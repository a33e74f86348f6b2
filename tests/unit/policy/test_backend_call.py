"""One stream: a silent replica is told from a slow one, and the network's time from our own."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.api.v1 import types_pb2
from earvoice.policy.backends.call import (
    BackendCall,
    BackendTimeouts,
    ReplicaLostError,
    request_clock,
)
from earvoice.policy.backends.replicas import ENCODER


class HealthyFor:
    """A replica that tells its health so many times, and answers when told to."""

    kind = ENCODER

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self.asked = 0
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def is_alive(self, timeout_s: float) -> bool:
        self.asked += 1
        return self.asked <= self.answers

    def open_call(self) -> HealthyFor:
        return self

    async def read(self) -> str:
        return await self.answer

    def cancel(self) -> None:
        """The stream ends with the wait."""


def call_to(replica: HealthyFor, **timeouts_s: float) -> BackendCall:
    return BackendCall(replica, {"encoder": ""}, lambda: 0.0, BackendTimeouts(**timeouts_s))  # type: ignore[arg-type]


@pytest.mark.parametrize("answers", [0, 1, 3])
async def test_one_that_does_not_tell_its_health_is_given_up(answers: int):
    """At the first question it leaves unanswered."""
    replica = HealthyFor(answers)
    with pytest.raises(ReplicaLostError, match=r"has not answered for 0\.02 s"):
        await call_to(replica, answer_s=0.02, slow_answer_s=20).read()
    assert replica.asked == answers + 1


async def test_one_that_tells_it_is_given_up_later():
    """It lives, and answers nothing else."""
    replica = HealthyFor(10**6)
    with pytest.raises(ReplicaLostError, match="for 1 s, though it runs"):
        await call_to(replica, answer_s=0.02, slow_answer_s=1.0).read()
    assert replica.asked > 1


@pytest.mark.parametrize("answer_s", [0.02, 60])
async def test_nothing_is_asked_where_answers_come(answer_s: float):
    """The usual case costs a timer."""
    replica = HealthyFor(0)
    call = call_to(replica, answer_s=answer_s)
    replica.answer.set_result("answer")
    assert await call.read() == "answer"
    await asyncio.sleep(0)
    assert replica.asked == 0


def test_without_long_turns_all_that_the_service_does_not_know_is_network():
    """What it says it took is taken off."""
    hop = request_clock(lambda: 0.0)(types_pb2.Timings(elapsed_ms=0.0, compute_ms=0.0))
    assert 0 <= hop.network_ms == hop.round_trip_ms


@given(st.floats(0, 10), st.floats(0, 1e4))
def test_long_turns_are_no_network_and_never_more_than_there_is(
    starved_s: float, elapsed_ms: float
):
    """The service's own time stays whole."""
    readings = iter([0.0, starved_s])
    clock = request_clock(lambda: next(readings))
    hop = clock(types_pb2.Timings(elapsed_ms=elapsed_ms, compute_ms=elapsed_ms / 2))
    assert hop.queue_ms + hop.compute_ms == hop.elapsed_ms
    if starved_s > 5:
        # More than the whole test takes.
        assert hop.network_ms < 1e-9
