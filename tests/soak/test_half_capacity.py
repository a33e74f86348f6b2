"""Live calls come and go for an hour, half as many as the services bear: nothing grows."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from contextlib import AsyncExitStack

import grpc
import psutil
import pytest

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from tests.e2e.calling import (
    RATE_HERTZ,
    OpenStream,
    Outcome,
    assert_well_formed,
    call,
    open_stream,
    paced,
)
from tests.e2e.running import SERVICES, Running
from tests.soak.growth import Growth, Tell
from tests.soak.live_lag import lag_ms, percentile
from tests.soak.recording import Clip, cut, join

SOAK_S = int(os.environ.get("EARVOICE_SOAK_S", "3600"))
CALL_S = 40
STRETCH_COUNT = 4
SAMPLES = 60
MOST_SESSIONS = 1000

pytestmark = pytest.mark.timeout(2 * SOAK_S + 600)


async def find_capacity(address: str) -> int:
    """Open sessions until one is refused, and end them well; how many there were."""
    streams: list[OpenStream] = []
    async with AsyncExitStack() as stack:
        while len(streams) < MOST_SESSIONS:
            stream = await stack.enter_async_context(open_stream(address))
            if not await has_begun(stream):
                break
            streams.append(stream)
        for stream in streams:
            await stream.end_audio()
            await stream.read_rest()
    return len(streams)


async def has_begun(stream: OpenStream) -> bool:
    """Whether a session was let in; whatever else than a full server ends the test."""
    try:
        await stream.read_until("session_started")
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return False
        raise
    return True


async def keep_calling(
    address: str, stretches: list[bytes], first: int, until_s: float
) -> list[tuple[int, Outcome]]:
    """One call after the other; which stretch each sent, and what came."""
    loop, done = asyncio.get_running_loop(), []
    number = first
    while loop.time() < until_s:
        index = number % len(stretches)
        messages = paced(stretches[index], catch_up=pb.CATCH_UP_EVERY_SEGMENT)
        done.append((index, await call(address, messages)))
        number += 1
    return done


async def watch(growth: Growth, processes: dict[str, psutil.Process], until_s: float) -> None:
    """Take samples, evenly, from when everything has been in use once."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(min(CALL_S, (until_s - loop.time()) / 4))
    pause_s = (until_s - loop.time()) / SAMPLES
    for _ in range(SAMPLES):
        growth.note(processes)
        await asyncio.sleep(pause_s)


async def test_an_hour_at_half_capacity(services: Running, clips: list[Clip], tell: Tell):
    """Each stretch says the same whenever it comes; memory, handles and threads are flat."""
    stretches = cut(join(clips, 2 * CALL_S).audio, STRETCH_COUNT, CALL_S)
    count = max(1, await find_capacity(services.address) // 2)
    processes = {service: services.process_of(service) for service in SERVICES}
    growth, until_s = Growth(), asyncio.get_running_loop().time() + SOAK_S
    async with asyncio.TaskGroup() as group:
        group.create_task(watch(growth, processes, until_s))
        lines = [
            group.create_task(keep_calling(services.address, stretches, first, until_s))
            for first in range(count)
        ]
    calls = [outcome for line in lines for outcome in line.result()]
    lags_ms = [lag for _, outcome in calls for lag in lag_ms(outcome)]
    tell(
        f"{count} lines for {SOAK_S} s, {len(calls)} calls, word lag p50 "
        f"{percentile(lags_ms, 50):.0f} ms, p95 {percentile(lags_ms, 95):.0f} ms"
    )
    texts = defaultdict(list)
    for index, outcome in calls:
        assert_well_formed(outcome)
        assert outcome.of("summary")[0].audio_samples == CALL_S * RATE_HERTZ
        texts[index].append(outcome.text)
    assert len(calls) > len(texts)
    assert all(text == said[0] for said in texts.values() for text in said)
    growth.assert_nothing_is_held(tell)
