"""Sessions are counted, refused and drained."""

from __future__ import annotations

import asyncio

import pytest

from earvoice.runtime.errors import NotReadyError, SessionLimitError
from earvoice.runtime.identity import set_tenant
from earvoice.runtime.session_limit import SessionLimit


def test_one_session_too_many_is_refused_at_once():
    """The 17th of 16, with a time to retry."""
    limit = SessionLimit(1)
    with limit.admit():
        with pytest.raises(SessionLimitError) as refused, limit.admit():
            pass
        assert refused.value.retry_after_ms is not None
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


def test_a_limit_that_is_measured_later_counts_from_then_on():
    """`auto` takes one session until it is known what can be taken."""
    limit = SessionLimit("auto")
    with limit.admit():
        with pytest.raises(SessionLimitError), limit.admit():
            pass
        limit.limit = 2
        with limit.admit():
            assert limit.active == 2
