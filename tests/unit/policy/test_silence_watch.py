"""A silent replica is told from a slow one."""

from __future__ import annotations

import asyncio

import pytest

from earvoice.policy.backends.kind import ENCODER
from earvoice.policy.backends.loss import ReplicaLostError
from earvoice.policy.backends.patience import Patience
from earvoice.policy.backends.silence_watch import SilenceWatch


class HealthyFor:
    """A replica that tells its health so many times."""

    kind = ENCODER

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self.asked = 0

    async def is_alive(self, timeout_s: float) -> bool:
        self.asked += 1
        return self.asked <= self.answers


async def waited(replica: HealthyFor, patience: Patience) -> ReplicaLostError:
    """Wait for an answer that never comes."""
    given_up: asyncio.Future[ReplicaLostError] = asyncio.get_running_loop().create_future()
    with SilenceWatch(replica, patience, given_up.set_result):  # type: ignore[arg-type]
        async with asyncio.timeout(30):
            return await given_up


@pytest.mark.parametrize("answers", [0, 1, 3])
async def test_one_that_does_not_tell_its_health_is_given_up(answers: int):
    """At the first question it leaves unanswered."""
    replica = HealthyFor(answers)
    error = await waited(replica, Patience(answer_s=0.02, slow_answer_s=20))
    assert "has not answered for 0.02 s" in error.message
    assert replica.asked == answers + 1


async def test_one_that_tells_it_is_given_up_later():
    """It lives, and answers nothing else."""
    replica = HealthyFor(10**6)
    error = await waited(replica, Patience(answer_s=0.02, slow_answer_s=1.0))
    assert "for 1 s, though it runs" in error.message
    assert replica.asked > 1


async def test_nothing_is_asked_where_answers_come():
    """The usual case costs a timer."""
    replica = HealthyFor(0)
    with SilenceWatch(replica, Patience(answer_s=0.02), pytest.fail):  # type: ignore[arg-type]
        pass
    with SilenceWatch(replica, Patience(answer_s=60), pytest.fail):  # type: ignore[arg-type]
        await asyncio.sleep(0)
    assert replica.asked == 0
