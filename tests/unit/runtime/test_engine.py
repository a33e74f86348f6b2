"""The engine's thread, its load, and the event loop's lag."""

from __future__ import annotations

import asyncio
import threading

import pytest

from earvoice.runtime import engine as engine_module
from earvoice.runtime.engine import (
    LOAD_WINDOW_S,
    EngineLoad,
    EngineThread,
    LoopLagSelector,
    returning_memory,
)


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
    assert [value for value, _, _ in results] == running == list(range(5))
    assert all(queue_ms >= 0 and compute_ms >= 0 for _, queue_ms, compute_ms in results)


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


async def test_what_nobody_waits_for_any_more_is_not_begun(engine):
    """A computation that was cancelled in the queue neither runs nor waits."""
    started, release = threading.Event(), threading.Event()
    computed: list[str] = []

    def compute() -> None:
        started.set()
        release.wait(10)

    running = asyncio.create_task(engine.run(compute))
    await asyncio.to_thread(started.wait, 10)
    queued = asyncio.create_task(engine.run(lambda: computed.append("queued")))
    await asyncio.sleep(0)
    assert engine.load.waiting_count() == 1
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    assert engine.load.waiting_count() == 0
    release.set()
    await running
    await engine.run(lambda: computed.append("later"))
    assert computed == ["later"]


async def test_an_error_reaches_its_caller_and_the_engine_goes_on(engine):
    """One failed computation is one caller's."""
    with pytest.raises(ZeroDivisionError):
        await engine.run(lambda: 1 // 0)
    value, _, _ = await engine.run(lambda: 7)
    assert value == 7


def test_the_busy_ratio_is_that_of_the_last_seconds():
    """Of fewer while the engine is young; what was computed before is forgotten."""
    now_s = [100.5]
    load = EngineLoad(lambda: 0, lambda: now_s[0])
    assert load.busy_ratio() == 0.0
    now_s[0] = 102.5
    load.record(0.25, 1)
    load.record(0.25, 1)
    assert load.busy_ratio() == 0.25
    now_s[0] = 101.0 + LOAD_WINDOW_S
    assert load.busy_ratio() == 0.5 / (LOAD_WINDOW_S - 1)
    now_s[0] = 102.0 + LOAD_WINDOW_S
    assert load.busy_ratio() == 0.0
    # In the place of what is forgotten.
    load.record(7.0, 2)
    assert load.busy_ratio() == 7.0 / (LOAD_WINDOW_S - 1)
    # It may have begun long before.
    load.record(60.0, 2)
    assert load.busy_ratio() == 1.0


async def test_a_thread_counts_what_it_computes():
    """Nothing waits afterwards, and each computation is a batch of one."""
    engine, batches = EngineThread("tested"), []
    engine.load.on_batch = batches.append
    for _ in range(3):
        await engine.run(lambda: None)
    engine.close()
    assert engine.load.waiting_count() == 0
    assert batches == [1, 1, 1]
    assert engine.load.busy_ratio() > 0


async def test_an_engine_at_rest_returns_memory_once(monkeypatch):
    """After loading, and each time that it has computed since; never while it computes."""
    load, naps = EngineLoad(lambda: 0), 0
    returned: list[int] = []
    computed = {3, 4, 7}  # before which naps it computes
    over = asyncio.Event()

    async def nap(_: float) -> None:
        nonlocal naps
        naps += 1
        if naps in computed:
            load.record(1.0, 1)
        if naps > 10:
            over.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(engine_module, "return_freed_memory", lambda: returned.append(naps))
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "sleep", nap)
        async with returning_memory(load):
            await over.wait()
    assert returned == [1, 5, 8]


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def test_long_turns_count_and_short_ones_do_not():
    """Also the one that runs."""
    clock = Clock()
    selector = LoopLagSelector(clock)
    clock.now_s += 0.001
    selector.select(0)
    assert selector.lag_s() == 0
    clock.now_s += 0.06
    assert selector.lag_s() > 0.059
    selector.select(0)
    clock.now_s += 0.04
    selector.select(0)
    clock.now_s += 0.001
    assert round(selector.lag_s(), 6) == 0.1
    selector.close()
