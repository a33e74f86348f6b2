"""Attacks by what is said: bytes, fields, sizes and orders."""

from __future__ import annotations

import random

import numpy as np

from earvoice.api.v1 import types_pb2
from tests.e2e.calling import Request, call, config, requests
from tests.fuzz.attack import SPEECH, Attack, configured, spoken, updated
from tests.fuzz.exchange import Ending, end_of, exchange, open_channel, write_all
from tests.fuzz.mutation import fill, spoil

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


ATTACKS = tuple(
    Attack(strike.__name__, strike)
    for strike in (
        random_bytes,
        spoiled_messages,
        odd_fields,
        hostile_sizes,
        odd_samples,
        tampered_tokens,
        wrong_orders,
        other_methods,
    )
)
