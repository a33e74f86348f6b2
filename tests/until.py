"""Waiting for what another process, or the other end of a connection, is about to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE_S = 200.0
INTERVAL_S = 0.01


async def until(is_so: Callable[[], object]) -> None:
    """Return once the condition holds.

    Raises:
        TimeoutError: it has not come true in `PATIENCE_S`.
    """
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - others tell no event of ours
            await asyncio.sleep(INTERVAL_S)
