"""Attacks by when it is said: floods, slow readers and writers, half-closed calls, cancels."""

from __future__ import annotations

import asyncio
import random

import grpc

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from tests.e2e.calling import Request
from tests.fuzz.attack import Attack, configured, spoken
from tests.fuzz.exchange import (
    METHOD,
    Ending,
    end_of,
    exchange,
    open_channel,
    write_all,
)

TWO_BYTES = Request(audio=bytes(2)).SerializeToString()
FLOOD = 5_000
DEAF_S = 3.0
CANCELS = 100


async def flood(address: str, draw: random.Random) -> list[Ending]:
    """Messages of one sample, as many as are taken."""
    return [await exchange(address, [configured(), *[TWO_BYTES] * draw.randint(1, FLOOD)])]


async def slow_writer(address: str, draw: random.Random) -> list[Ending]:
    """A good beginning, then a message now and then, then none at all, and never an end."""
    async with open_channel(address) as channel:
        call = channel.stream_stream(METHOD)()
        for message in [configured(), *spoken()[: draw.randrange(20)], TWO_BYTES, TWO_BYTES]:
            await call.write(message)
            await asyncio.sleep(draw.choice((0.0, 0.05)))
        return [await end_of(call)]


async def slow_reader(address: str, draw: random.Random) -> list[Ending]:
    """A stream that has much to tell, to somebody who does not listen for a while."""
    first = configured(enable_interim_results=True, enable_stage_timings=True)
    async with open_channel(address, small=True) as channel:
        call = channel.stream_stream(METHOD)()
        writing = asyncio.create_task(write_all(call, [first, *spoken() * draw.randint(1, 4)]))
        await asyncio.sleep(draw.uniform(0, DEAF_S))
        ending = await end_of(call)
        writing.cancel()
        await asyncio.wait({writing})
        return [ending]


async def half_closed(address: str, draw: random.Random) -> list[Ending]:
    """An end after nothing, after the config, or in the middle of a word."""
    messages = [configured(catch_up=pb.CATCH_UP_MERGE), *spoken(draw.choice((2, 320, 3200)))]
    return [await exchange(address, messages[: draw.choice((0, 1, 2, 13))])]


async def cancels(address: str, draw: random.Random) -> list[Ending]:
    """Calls that are given up at any moment, many on one connection."""
    async with open_channel(address) as channel:
        ways = [_cancelled(channel, draw.randrange(9), draw.random() / 9) for _ in range(CANCELS)]
        return list(await asyncio.gather(*ways))


async def _cancelled(channel: grpc.aio.Channel, count: int, after_s: float) -> Ending:
    call = channel.stream_stream(METHOD)()
    writing = asyncio.create_task(write_all(call, [configured(), *spoken()[:count]]))
    await asyncio.sleep(after_s)
    call.cancel()
    # A write that waits when its call is cancelled would wait for ever.
    writing.cancel()
    await asyncio.wait({writing})
    return await end_of(call)


async def vanishing(address: str, draw: random.Random) -> list[Ending]:
    """Connections that end in mid-stream."""
    for _ in range(10):
        async with open_channel(address) as channel:
            call = channel.stream_stream(METHOD)()
            await call.write(configured())
            for message in spoken()[: draw.randrange(9)]:
                await call.write(message)
    return []


async def deadlines(address: str, draw: random.Random) -> list[Ending]:
    """Calls with less time than they need."""
    async with open_channel(address) as channel:
        call = channel.stream_stream(METHOD)(timeout=draw.choice((0.001, 0.05, 0.5)))
        writing = asyncio.create_task(write_all(call, [configured(), *spoken()]))
        ending = await end_of(call)
        writing.cancel()
        await asyncio.wait({writing})
        return [ending]


ATTACKS = tuple(
    Attack(strike.__name__, strike)
    for strike in (
        flood,
        slow_writer,
        slow_reader,
        half_closed,
        cancels,
        vanishing,
        deadlines,
    )
)
