"""Ways to trouble the service: by what is said, by when it is said, and below gRPC."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

import grpc
import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from tests.e2e.calling import Request, call, config, requests
from tests.fuzz.exchange import (
    METHOD,
    SPEECH,
    Ending,
    configured,
    end_of,
    exchange,
    open_channel,
    spoken,
    updated,
    write_all,
)

DEEPEST = 4
MOST_REPEATS = 300
INTEGERS = (0, 1, -1, 2, 7, 255, 8_000, 16_000, 48_000, 2**31 - 1, -(2**31))
LONG_INTEGERS = (*INTEGERS, 2**53, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, 0.5, -1.0, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"))
NATURALS = tuple(number for number in INTEGERS if number >= 0)
NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: INTEGERS,
    FieldDescriptor.CPPTYPE_INT64: LONG_INTEGERS,
    FieldDescriptor.CPPTYPE_UINT32: NATURALS,
    FieldDescriptor.CPPTYPE_UINT64: NATURALS,
    FieldDescriptor.CPPTYPE_DOUBLE: FLOATS,
    FieldDescriptor.CPPTYPE_FLOAT: FLOATS,
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
}
TEXTS = ("", "de", "en", "xx", "\0", "../../etc/passwd", "%s%n", "ü" * 999, "a" * 100_000)


def spoil(message: bytes, draw: random.Random) -> bytes:
    """Return the bytes with some of them changed, left out, repeated or put in."""
    spoiled = bytearray(message)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(spoiled) + 1)
        end = min(len(spoiled), at + draw.randint(1, 8))
        match draw.randrange(5):
            case 0:
                spoiled[at:end] = draw.randbytes(end - at)
            case 1:
                del spoiled[at:end]
            case 2:
                spoiled[at:at] = spoiled[at:end] * draw.randint(1, 50)
            case 3:
                spoiled[at:at] = draw.randbytes(draw.randint(1, 40))
            case 4:
                del spoiled[at:]
    return bytes(spoiled)


def fill(message: Message, draw: random.Random, share: float, depth: int = 0) -> None:
    """Set a share of a message's fields, and of the messages in it, to odd values."""
    for field in message.DESCRIPTOR.fields:
        if draw.random() < share:
            _fill_field(message, field, draw, share, depth)


def _fill_field(
    message: Message, field: FieldDescriptor, draw: random.Random, share: float, depth: int
) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return
    if field.is_repeated:
        values = getattr(message, field.name)
        for _ in range(draw.choice((1, 2, draw.randint(1, MOST_REPEATS)))):
            if field.message_type is None:
                values.append(_value(field, draw))
            elif depth < DEEPEST:
                fill(values.add(), draw, share, depth + 1)
    elif field.message_type is None:
        setattr(message, field.name, _value(field, draw))
    elif depth < DEEPEST:
        getattr(message, field.name).SetInParent()
        fill(getattr(message, field.name), draw, share, depth + 1)


def _value(field: FieldDescriptor, draw: random.Random) -> object:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = draw.choice(TEXTS)
        return text if field.type == field.TYPE_STRING else draw.randbytes(len(text))
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return draw.choice((*(value.number for value in field.enum_type.values), 99, -1))
    return draw.choice(NUMBERS[field.cpp_type])


MEBIBYTE = 2**20
SIZES = (0, 1, 2, 3, 15, MEBIBYTE - 2, MEBIBYTE, MEBIBYTE + 2, 4 * MEBIBYTE - 99, 5 * MEBIBYTE)
OTHER_METHODS = ("ListModels", "NoSuchMethod", "")
SERVICE = "/earvoice.api.v1.SpeechTranslationService/"


async def random_bytes(address: str, draw: random.Random) -> list[Ending]:
    """No messages at all, from the start or after a good config."""
    noise = [draw.randbytes(draw.randrange(5000)) for _ in range(draw.randint(1, 20))]
    return [await exchange(address, [configured(), *noise][draw.randrange(2) :])]


async def spoiled_messages(address: str, draw: random.Random) -> list[Ending]:
    """A good stream, some of whose messages are broken."""
    good = [configured(), *spoken(), updated(), *spoken()]
    share = draw.choice((0.02, 0.2, 1.0))
    return [await exchange(address, [spoil(m, draw) if draw.random() < share else m for m in good])]


async def odd_fields(address: str, draw: random.Random) -> list[Ending]:
    """A config or an update with values that nobody would send."""
    request = Request(config=config())
    fill(request.config, draw, draw.choice((0.05, 0.2, 0.6)))
    update = Request()
    update.update.SetInParent()
    fill(update.update, draw, 0.4)
    first = draw.choice((request.SerializeToString(), configured()))
    return [await exchange(address, [first, *spoken(), update.SerializeToString(), *spoken()])]


async def hostile_sizes(address: str, draw: random.Random) -> list[Ending]:
    """Audio messages of every size around the limits, and texts as long as fit."""
    sizes = [draw.choice(SIZES) for _ in range(draw.randint(1, 4))]
    audio = [Request(audio=bytes(size)).SerializeToString() for size in sizes]
    long_text = "x" * draw.choice((1000, 3 * MEBIBYTE))
    texts = draw.choice((["de"], [long_text], ["de"] * 100_000))
    return [
        await exchange(address, [configured(), *audio]),
        await exchange(address, [configured(target_language_codes=texts)]),
        await exchange(address, [configured(resume_token=draw.randbytes(len(long_text)))]),
    ]


async def odd_samples(address: str, draw: random.Random) -> list[Ending]:
    """Numbers that are no sound."""
    numbers = [float("nan"), float("inf"), 3e38, -3e38, 1e-40]
    samples = np.array(draw.choices(numbers, k=800), "<f4").tobytes()
    encoding = types_pb2.AUDIO_ENCODING_FLOAT32
    rate_hertz = draw.choice((8000, 11_025, 44_100, 48_000))
    first = configured(audio_encoding=encoding, sample_rate_hertz=rate_hertz)
    return [await exchange(address, [first, Request(audio=samples).SerializeToString(), *spoken()])]


async def tampered_tokens(address: str, draw: random.Random) -> list[Ending]:
    """Resume tokens that were changed, and good ones with audio that is not theirs."""
    outcome = await call(address, requests(SPEECH))
    tokens = [released.resume_token for released in outcome.of("committed")] or [b"none"]
    token = draw.choice(tokens)
    return [
        await exchange(address, [configured(resume_token=spoil(token, draw)), *spoken()]),
        await exchange(address, [configured(resume_token=token), *spoken() * draw.randrange(4)]),
        await exchange(address, [configured(resume_token=token, sample_rate_hertz=8000)]),
    ]


async def wrong_orders(address: str, draw: random.Random) -> list[Ending]:
    """Good messages in an order of their own."""
    kinds = [configured(), spoken()[0], updated(), b""]
    return [await exchange(address, draw.choices(kinds, k=draw.randint(0, 12)))]


async def other_methods(address: str, draw: random.Random) -> list[Ending]:
    """Methods that take no stream, or that do not exist, and metadata of any size."""
    metadata = [("x-any", "a" * draw.choice((1, 1000, 60_000))), ("traceparent", "00-zz-1-2")]
    async with open_channel(address) as channel:
        call = channel.stream_stream(SERVICE + draw.choice(OTHER_METHODS))(metadata=metadata)
        await write_all(call, [draw.randbytes(draw.randrange(99)) for _ in range(2)])
        return [await end_of(call)]


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


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = bytes(3) + b"\x04" + bytes(5)
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
HELD_CONNECTIONS = 50


async def no_http(address: str, draw: random.Random) -> list[Ending]:
    """Anything but HTTP/2."""
    await _send(
        address, draw.choice((draw.randbytes(2000), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03"))
    )
    return []


async def odd_frames(address: str, draw: random.Random) -> list[Ending]:
    """HTTP/2 frames of any type, flags, stream and length."""
    frames = [PREFACE, EMPTY_SETTINGS]
    for _ in range(draw.randint(1, 30)):
        body = draw.randbytes(draw.randrange(200))
        claimed = draw.choice((len(body), len(body), draw.randrange(1 << 24)))
        head = claimed.to_bytes(3, "big") + bytes([draw.randrange(12), draw.randrange(256)])
        frames.append(head + struct.pack(">I", draw.choice((0, 1, 2, 3, 2**31 - 1))) + body)
    await _send(address, b"".join(frames))
    return []


async def silent_connections(address: str, draw: random.Random) -> list[Ending]:
    """Connections that say nothing, and are then reset."""
    host, _, port = address.rpartition(":")
    count = draw.randint(1, HELD_CONNECTIONS)
    opened = await asyncio.gather(*(asyncio.open_connection(host, int(port)) for _ in range(count)))
    for _, writer in opened:
        await _reset(writer)
    return []


async def _send(address: str, data: bytes) -> None:
    """Send bytes, read until the server ends it or has nothing more to say, and reset."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(0.5):
            while await reader.read(4096):
                pass
    await _reset(writer)


async def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


ATTACKS: dict[str, Callable[[str, random.Random], Awaitable[list[Ending]]]] = {
    attack.__name__: attack
    for attack in (
        random_bytes,
        spoiled_messages,
        odd_fields,
        hostile_sizes,
        odd_samples,
        tampered_tokens,
        wrong_orders,
        other_methods,
        flood,
        slow_writer,
        slow_reader,
        half_closed,
        cancels,
        vanishing,
        deadlines,
        no_http,
        odd_frames,
        silent_connections,
    )
}
"""How each call ended, of an attack on an address; by name, to run one again."""
