"""How many sessions are taken, and when those who are refused come again."""

from __future__ import annotations

import asyncio
import contextvars

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.runtime.authentication import set_tenant
from earvoice.runtime.errors import NotReadyError, SessionLimitError
from earvoice.runtime.session_limit import (
    EARLIEST_RETRY_S,
    LATEST_RETRY_S,
    MOST_SESSIONS,
    RETRY_INTERVAL_S,
    SPARE_DESCRIPTORS,
    SessionLimit,
    fit_cost,
    retry_schedule,
    session_count,
)


def test_one_session_too_many_is_refused_at_once():
    """The 17th of 16, with a time to retry."""
    limit = SessionLimit(1)
    with limit.admit():
        with pytest.raises(SessionLimitError) as refused, limit.admit():
            pass
        assert refused.value.retry_after_ms is not None
    with limit.admit():
        assert limit.active == 1


def test_no_session_begins_on_the_last_descriptors():
    """Its caller may come again, when there are some."""
    left = [SPARE_DESCRIPTORS - 1]
    limit = SessionLimit(16, descriptors_left=lambda: left[0])
    with pytest.raises(SessionLimitError, match="file descriptors are taken") as refused:
        limit.check()
    assert refused.value.retry_after_ms is not None
    assert limit.refused == {"SESSION_LIMIT": 1}
    left[0] += 1
    with limit.admit():
        assert limit.active == 1


def test_who_is_refused_together_does_not_come_back_together():
    """Each is told a time of its own."""
    limit = SessionLimit(1)
    times_ms = set()
    with limit.admit():
        for _ in range(10):
            with pytest.raises(SessionLimitError) as refused, limit.admit():
                pass
            times_ms.add(refused.value.retry_after_ms)
    assert len(times_ms) == 10


async def test_draining_refuses_new_sessions_and_waits_for_old_ones():
    """It returns when the last session has ended."""
    limit = SessionLimit(2)
    with limit.admit():
        draining = asyncio.create_task(limit.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        with pytest.raises(NotReadyError), limit.admit():
            pass
    await draining


def test_a_tenant_has_its_own_limit():
    """One that fills it leaves room for the others, and gets it back when a session ends."""

    async def of(tenant: str) -> None:
        set_tenant(tenant)
        with limit.admit():
            await release.wait()

    async def check() -> None:
        first = asyncio.create_task(of("calls"))
        await asyncio.sleep(0)
        with pytest.raises(SessionLimitError, match="1 sessions of this tenant") as refused:
            await asyncio.create_task(of("calls"))
        assert refused.value.retry_after_ms is not None
        other = asyncio.create_task(of("others"))
        await asyncio.sleep(0)
        assert limit.active == 2
        release.set()
        await asyncio.gather(first, other)
        await asyncio.create_task(of("calls"))

    release = asyncio.Event()
    limit = SessionLimit(10, tenant_limit=1)
    asyncio.run(check())
    assert limit.refused == {"TENANT_LIMIT": 1}


def test_a_tenant_at_its_limit_is_logged_once_until_it_has_room_again(caplog):
    """Its callers come again and again; whose limit it is stands in every line."""

    def refuse(times: int) -> None:
        with limit.admit():
            for _ in range(times):
                with pytest.raises(SessionLimitError):
                    limit.check()

    limit = SessionLimit(10, tenant_limit=1)
    contextvars.copy_context().run(lambda: (set_tenant("calls"), refuse(3), refuse(2)))
    told = [record.getMessage() for record in caplog.records]
    assert told == ["a tenant has all the sessions that it may have"] * 2


def test_a_limit_that_is_measured_later_counts_from_then_on():
    """`auto` takes one session until it is known what can be taken."""
    limit = SessionLimit("auto")
    with limit.admit():
        with pytest.raises(SessionLimitError), limit.admit():
            pass
        limit.limit = 2
        with limit.admit():
            assert limit.active == 2


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_one_after_the_other():
    """Those who knock together do not come back together."""
    next_ms = retry_schedule(Clock())
    waits_ms = [next_ms() for _ in range(20)]
    first_ms, step_ms = 1000 * EARLIEST_RETRY_S, 1000 * RETRY_INTERVAL_S
    assert waits_ms == [first_ms + turn * step_ms for turn in range(20)]


def test_one_who_waits_alone_comes_back_soon():
    """Nobody pays for those who have long been let in."""
    clock = Clock()
    next_ms = retry_schedule(clock)
    for _ in range(20):
        next_ms()
    clock.now_s += LATEST_RETRY_S
    assert next_ms() == 1000 * EARLIEST_RETRY_S


@pytest.mark.parametrize("clients", [4, 16, 36])
def test_as_many_come_in_a_second_however_many_wait(clients: int):
    """Up to `LATEST_RETRY_S` of them, each coming when it was told."""
    clock = Clock()
    next_ms = retry_schedule(clock)
    due_s = [clock.now_s] * clients
    for _ in range(20 * clients):
        turn = due_s.index(min(due_s))
        clock.now_s = due_s[turn]
        due_s[turn] += next_ms() / 1000
    settled_s = clock.now_s
    count = 0
    while min(due_s) < settled_s + LATEST_RETRY_S:
        turn = due_s.index(min(due_s))
        clock.now_s = due_s[turn]
        due_s[turn] += next_ms() / 1000
        count += 1
    assert count <= LATEST_RETRY_S / RETRY_INTERVAL_S + 1


def test_nobody_waits_longer_than_the_longest_time():
    """A crowd is spread over that time instead."""
    next_ms = retry_schedule(Clock())
    waits_ms = [next_ms() for _ in range(1000)]
    assert max(waits_ms) <= 1000 * LATEST_RETRY_S
    assert min(waits_ms) >= 1000 * EARLIEST_RETRY_S
    drawn_ms = waits_ms[100:]
    assert len(set(drawn_ms)) > 500
    assert min(drawn_ms) < 2000
    assert max(drawn_ms) > 9000


seconds = st.floats(1e-6, 100)


def test_a_pass_of_100_ms_in_800_ms_bears_five_sessions():
    """0.7 of 800 ms is 560 ms: five passes, and no sixth."""
    assert session_count((0.1, 0.0), 800, 0.7) == 5


def test_what_sessions_share_is_paid_once():
    """0.1 s in common and 0.05 s each: nine in 0.56 s."""
    assert session_count((0.05, 0.1), 800, 0.7) == 9


@given(seconds, seconds, st.integers(1, 60_000), st.floats(0.05, 1))
def test_the_engine_is_kept_at_its_ratio_or_one_session_is_taken(own, shared, segment_ms, ratio):
    """As many as fit, never none, never more than 10,000."""
    count = session_count((own, shared), segment_ms, ratio)
    assert 1 <= count <= MOST_SESSIONS
    available_s = ratio * segment_ms / 1000
    assert count == 1 or count * own + shared <= available_s * (1 + 1e-9)
    assert count == MOST_SESSIONS or (count + 1) * own + shared > available_s * (1 - 1e-9)


@given(seconds, seconds, seconds, st.integers(2, 64))
def test_a_fitted_line_meets_its_measurements(once, one, slope, many):
    """One session and several cost what was measured."""
    own_s, shared_s = fit_cost(once, one + slope, one + slope * many, many)
    assert abs(own_s + shared_s - (once + one + slope)) < 1e-6 * many * (one + slope)
    assert abs(many * (own_s - once) + shared_s - (one + slope * many)) < 1e-3


@given(seconds, seconds, seconds, st.integers(2, 64))
def test_noise_in_a_measurement_makes_no_negative_cost(once, one, several, many):
    """Several that took less than one are several for nothing."""
    own_s, shared_s = fit_cost(once, one, several, many)
    assert own_s > 0
    assert shared_s >= 0
