"""One client of the services: sends a recording, as it is spoken or at once, and hears."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from earvoice.client import (
    AudioFormat,
    Committed,
    CommittedWord,
    EndOfUtterance,
    Reconnected,
    SegmentDone,
    Summary,
    Tentative,
    TranslationError,
    TranslationOptions,
    connect,
)
from earvoice.client.pacing import FAST_CHUNK_MS, REALTIME_CHUNK_MS, pace, send_fast
from tests.e2e.calling import RATE_HERTZ, pieces

CatchUp = Literal["merge", "every-segment"]

AUDIO_FORMAT = AudioFormat("linear16", RATE_HERTZ, 1)
# Over the recording's length: to reconnect for a minute, and to catch up.
PATIENCE_S = 100
PROGRESS = (Committed, Tentative, SegmentDone, EndOfUtterance, Summary)


@dataclass
class Heard:
    """What came of one stream.

    Attributes:
        words: everything released, in order.
        ends: of utterances, in order.
        reconnect_count: how often the client went elsewhere.
        progress_s: when the session began, and each event since that tells of work done.
        summary: the last event of a stream that ended well.
        failure: how another one ended.
    """

    words: list[CommittedWord] = field(default_factory=list)
    ends: list[EndOfUtterance] = field(default_factory=list)
    reconnect_count: int = 0
    progress_s: list[float] = field(default_factory=list)
    summary: Summary | None = None
    failure: str = ""

    @property
    def longest_gap_s(self) -> float:
        """Longest time in which the client heard nothing."""
        gaps_s = (after - before for before, after in itertools.pairwise(self.progress_s))
        return max(gaps_s, default=float("inf"))


async def listen(address: str, audio: bytes, catch_up: CatchUp, *, paced: bool) -> Heard:
    """Send a recording and return what came, whatever came.

    Args:
        address: of the public service, as `connect` takes it.
        audio: LINEAR16 at `RATE_HERTZ`, mono.
        catch_up: what the server does when it is late.
        paced: whether each chunk leaves when its last sample exists.
    """
    heard = Heard()
    try:
        async with asyncio.timeout(AUDIO_FORMAT.duration_ms(len(audio)) / 1000 + PATIENCE_S):
            await _listen(address, audio, catch_up, paced=paced, to=heard)
    except TranslationError as error:
        heard.failure = f"{error.code or type(error).__name__} {error.reason}: {error}"
    except TimeoutError:
        heard.failure = "it hung"
    return heard


async def _listen(address: str, audio: bytes, catch_up: CatchUp, *, paced: bool, to: Heard) -> None:
    loop = asyncio.get_running_loop()
    options = TranslationOptions(("de",), AUDIO_FORMAT, catch_up=catch_up, paced=paced)
    async with (
        connect(address) as client,
        aclosing(client.translate(_chunks(audio, paced=paced), options)) as events,
    ):
        async for event in events:
            if isinstance(event, PROGRESS) or not to.progress_s:
                to.progress_s.append(loop.time())
            match event:
                case Committed():
                    to.words += event.words
                case EndOfUtterance():
                    to.ends.append(event)
                case Reconnected():
                    to.reconnect_count += 1
                case Summary():
                    to.summary = event


def _chunks(audio: bytes, *, paced: bool) -> AsyncIterator[bytes]:
    size = AUDIO_FORMAT.chunk_bytes(REALTIME_CHUNK_MS if paced else FAST_CHUNK_MS)
    chunks = pieces(audio, size)
    return pace(chunks, AUDIO_FORMAT) if paced else send_fast(chunks)
