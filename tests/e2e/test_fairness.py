"""Sessions that flood, stall or never read, beside one that behaves: it is served as if alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import grpc
import pytest
from google.protobuf import duration_pb2

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from tests.e2e.calling import (
    OpenStream,
    Outcome,
    Request,
    assert_well_formed,
    audio_messages,
    call,
    config,
    noise,
    open_stream,
    paced,
    pieces,
    requests,
    speech,
)
from tests.e2e.running import Running, start

pytestmark = pytest.mark.timeout(600)

# As a client that reads nothing has it: its window is full after a few responses.
SMALL_WINDOW = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]
EAGER = {
    "enable_interim_results": True,
    "enable_stage_timings": True,
    "segment_duration": duration_pb2.Duration(nanos=200_000_000),
}
PATIENCE_S = 240
MOST_RESIDENT_GROWTH_BYTES = 200 * 2**20


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Services of this module's own: what misbehaves here must not spoil other tests."""
    running = start(tmp_path_factory.mktemp("crowded"))
    yield running
    assert running.stop() == 0


async def flood(address: str, size: int) -> None:
    """Send noise as fast as it is taken, in messages of so many bytes, and read everything."""
    messages = pieces(noise(2, level=0.3), size)

    async def endless() -> AsyncIterator[Request]:
        yield Request(config=config(**EAGER))
        while True:
            for message in messages:
                yield Request(audio=message)

    await call(address, endless())


async def never_read(stream: OpenStream) -> None:
    """Send audio for ever; nobody reads what it brings."""
    try:
        while True:
            await stream.send(*audio_messages(speech()))
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return  # The server has ended it, as it may.


async def well_behaved(address: str) -> Outcome:
    """A live stream whose text is a function of its audio."""
    async with asyncio.timeout(PATIENCE_S):
        return await call(address, paced(speech(), catch_up=pb.CATCH_UP_EVERY_SEGMENT))


async def test_a_stream_is_served_beside_others_that_misbehave(crowded: Running):
    """Every segment is answered and the text is that of a quiet machine; memory stays bounded."""
    alone = await call(crowded.address, requests(speech()))
    before = crowded.resident_bytes()
    async with AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(open_stream(crowded.address)) for _ in range(2)]
        await silent[0].send(*audio_messages(speech())[:10])
        unread = await stack.enter_async_context(
            open_stream(crowded.address, SMALL_WINDOW, **EAGER)
        )
        others = [
            asyncio.create_task(flood(crowded.address, 200_000)),
            asyncio.create_task(flood(crowded.address, 2)),
            asyncio.create_task(never_read(unread)),
        ]
        outcome = await well_behaved(crowded.address)
        after = crowded.resident_bytes()
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    assert_well_formed(outcome)
    assert outcome.text == alone.text
    assert len(outcome.of("segment_done")) == len(alone.of("segment_done"))
    growth = {service: after[service] - before[service] for service in after}
    assert max(growth.values()) < MOST_RESIDENT_GROWTH_BYTES, growth
    assert_well_formed(await well_behaved(crowded.address))
