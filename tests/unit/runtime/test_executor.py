"""Computation runs one at a time, and is over before its caller goes on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from earvoice.runtime.executor import EngineThread


@pytest.fixture
def engine():
    engine = EngineThread("test")
    yield engine
    engine.close()


async def test_computations_run_in_order_and_alone(engine):
    """First come, first served, never two at once."""
    running: list[int] = []

    def compute(number: int) -> int:
        running.append(number)
        return threading.active_count() and number

    results = await asyncio.gather(*(engine.run(lambda n=n: compute(n)) for n in range(5)))
    assert [result.value for result in results] == running == list(range(5))
    assert all(result.queue_ms >= 0 and result.compute_ms >= 0 for result in results)


async def test_a_cancelled_caller_waits_for_its_computation(engine):
    """What is computed on must not be reused before."""
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def compute() -> None:
        started.set()
        release.wait(10)
        ended.set()

    task = asyncio.create_task(engine.run(compute))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_an_error_reaches_its_caller_and_the_engine_goes_on(engine):
    """One failed computation is one caller's."""
    with pytest.raises(ZeroDivisionError):
        await engine.run(lambda: 1 // 0)
    assert (await engine.run(lambda: 7)).value == 7
