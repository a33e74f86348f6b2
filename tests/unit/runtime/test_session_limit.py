"""Sessions are counted, refused and drained."""

from __future__ import annotations

import asyncio

import pytest

from earvoice.runtime.errors import NotReadyError, SessionLimitError
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
