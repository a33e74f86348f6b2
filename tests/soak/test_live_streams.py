"""Ten live streams at once on this machine: each is whole, none disturbs another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from tests.e2e.calling import (
    RATE_HERTZ,
    Request,
    assert_well_formed,
    call,
    config,
    pieces,
    requests,
)
from tests.e2e.running import Running
from tests.soak.growth import Tell
from tests.soak.live_lag import lag_ms, percentile
from tests.soak.recording import Clip, cut, join

STREAM_COUNT = 10
STREAM_S = 60
CHUNK_MS = 100
CHUNK_BYTES = 2 * RATE_HERTZ * CHUNK_MS // 1000

pytestmark = pytest.mark.timeout(1800)


async def live(audio: bytes, delay_s: float) -> AsyncIterator[Request]:
    """Config, then each chunk when its last sample exists."""
    await asyncio.sleep(delay_s)
    yield Request(config=config(catch_up=pb.CATCH_UP_MERGE))
    loop = asyncio.get_running_loop()
    origin_s = loop.time()
    for number, piece in enumerate(pieces(audio, CHUNK_BYTES), start=1):
        await asyncio.sleep(origin_s + number * CHUNK_MS / 1000 - loop.time())
        yield Request(audio=piece)


async def test_ten_live_streams_are_each_whole(services: Running, clips: list[Clip], tell: Tell):
    """Words for every stream; where nothing was merged, exactly those of EVERY_SEGMENT."""
    stretches = cut(join(clips, 2 * STREAM_S).audio, STREAM_COUNT, STREAM_S)
    streams = [
        call(services.address, live(audio, index * CHUNK_MS / 1000 / STREAM_COUNT))
        for index, audio in enumerate(stretches)
    ]
    outcomes = await asyncio.gather(*streams)
    unmerged = 0
    for audio, outcome in zip(stretches, outcomes, strict=True):
        assert_well_formed(outcome)
        assert outcome.items
        summary = outcome.of("summary")[0]
        assert summary.audio_samples == len(audio) // 2
        merged = sum(done.merged_segments for done in outcome.of("segment_done"))
        assert summary.merged_segments == merged
        if merged == 0:
            unmerged += 1
            alone = await call(services.address, requests(audio))
            assert outcome.text == alone.text
    lags_ms = [lag for outcome in outcomes for lag in lag_ms(outcome)]
    merged_count = sum(outcome.of("summary")[0].merged_segments for outcome in outcomes)
    segment_count = sum(outcome.of("summary")[0].segment_count for outcome in outcomes)
    tell(
        f"{STREAM_COUNT} streams of {STREAM_S} s: {len(lags_ms)} items, word lag "
        f"p50 {percentile(lags_ms, 50):.0f} ms, p95 {percentile(lags_ms, 95):.0f} ms; "
        f"{merged_count} segments merged away beside {segment_count}; "
        f"{unmerged} streams without a merge"
    )
