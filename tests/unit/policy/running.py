"""Runs a session against the scripted encoder and decoder."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace

from earvoice.policy.arrival_clock import ArrivalClock
from earvoice.policy.audio_buffer import AudioBuffer
from earvoice.policy.decisions.edatt import EdattParameters
from earvoice.policy.event import Event, ReleasedItem, WordsReleased
from earvoice.policy.observer import SegmentObserver
from earvoice.policy.resume.snapshot import SessionSnapshot
from earvoice.policy.session import TranslationSession
from earvoice.policy.stream_options import AudioEncoding, AudioFormat, StreamOptions
from tests.unit.policy.scripted import RATE_HERTZ, ScriptedDecoder, ScriptedEncoder

OPTIONS = StreamOptions(
    audio_format=AudioFormat(AudioEncoding.LINEAR16, RATE_HERTZ, 1),
    target_language_code="de",
    policy=EdattParameters(alpha=0.5, lambda_states=2, attention_layer=1),
    attention_layer=1,
    segment_ms=800,
    merges_segments=False,
)


def run_session(
    messages: Sequence[bytes | StreamOptions],
    options: StreamOptions = OPTIONS,
    encoder: ScriptedEncoder | None = None,
    decoder: ScriptedDecoder | None = None,
    *,
    late: bool = False,
    observer: SegmentObserver | None = None,
    resumed: SessionSnapshot | None = None,
) -> list[Event]:
    """Run a session over audio and updates to its end and return its events, totals last.

    Args:
        messages: what the client sends.
        options: what it asked for.
        encoder: the usual one unless given.
        decoder: the usual one unless given.
        late: whether everything has come before the first segment is looked at.
        observer: is told of every segment.
        resumed: a session to go on with; the messages are then of its later audio.
    """
    return asyncio.run(_run(messages, options, encoder, decoder, observer, resumed, late=late))


async def _run(
    messages, options, encoder, decoder, observer, resumed, *, late: bool
) -> list[Event]:
    events: list[Event] = []
    start_sample = resumed.start_sample if resumed else 0
    audio = AudioBuffer(options.audio_format.frame_bytes, 10**9, start_sample)
    arrivals = ArrivalClock(RATE_HERTZ)
    ticks = itertools.count()

    async def emit(event: Event) -> None:
        events.append(event)

    session = TranslationSession(
        options,
        encoder or ScriptedEncoder(),
        decoder or ScriptedDecoder(),
        audio,
        arrivals,
        emit,
        now_s=lambda: 1000.0 + next(ticks) / 1000,
        observer=observer,
        resumed=resumed,
    )

    async def feed() -> None:
        for message in messages:
            if isinstance(message, StreamOptions):
                await session.update(message)
                continue
            arrival_s = 900.0 + audio.received_samples / RATE_HERTZ
            await audio.append(message, arrival_s)
            arrivals.note(audio.received_samples, arrival_s)
            await asyncio.sleep(0)
        await audio.end()

    if late:
        await feed()
        totals = await session.run()
        return [*events, totals]
    _, totals = await asyncio.gather(feed(), session.run())
    return [*events, totals]


def seconds(count: float) -> bytes:
    """That much audio; the scripted encoder does not listen."""
    return bytes(int(count * RATE_HERTZ) * 2)


def items_of(events: Sequence[Event]) -> list[ReleasedItem]:
    """All released items, in order."""
    return [item for event in events if isinstance(event, WordsReleased) for item in event.items]


def with_options(**changes) -> StreamOptions:
    """The usual options with some changed."""
    return replace(OPTIONS, **changes)
