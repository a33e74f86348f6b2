"""How busy an engine is."""

from __future__ import annotations

from earvoice.runtime.engine_load import BusyRatio, EngineLoad
from earvoice.runtime.executor import EngineThread


def test_the_ratio_is_that_of_the_time_since_it_was_read():
    """Each reading begins anew."""
    now_s = [100.0]
    load = EngineLoad(lambda: 0)
    ratio = BusyRatio(load, lambda: now_s[0])
    load.note(0.25, 1)
    now_s[0] += 1.0
    assert ratio.read() == 0.25
    now_s[0] += 1.0
    assert ratio.read() == 0.0
    # A computation that began before the reading ends in the next interval.
    load.note(3.0, 2)
    now_s[0] += 2.0
    assert ratio.read() == 1.0


async def test_a_thread_counts_what_it_computes():
    """Nothing waits afterwards, and each computation is a batch of one."""
    engine, batches = EngineThread("tested"), []
    engine.load.on_batch = batches.append
    for _ in range(3):
        await engine.run(lambda: None)
    engine.close()
    assert engine.load.waiting_count == 0
    assert batches == [1, 1, 1]
    assert engine.load.busy_s > 0
